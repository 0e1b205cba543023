"""Training: the optimiser, the training step, and the loop that yields snapshots."""
