"""The references with which every score is compared."""
