"""What is measured: scores, and the references every score is read against."""
