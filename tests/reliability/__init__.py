"""What a run survives: a file for each promise. `make torture` runs their long form."""
