"""One run: its directory, its training, its checkpoints, and how it is read back."""
