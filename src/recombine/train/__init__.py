"""Training: the optimiser, the step and the loop, which yields snapshots."""
