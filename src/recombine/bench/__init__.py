"""The benchmark: speed and memory of a training step, ours and the peers'."""
