"""The references that every score is read against."""
