"""The benchmark: speed and memory of our training step, compared with other libraries (the peers)."""
