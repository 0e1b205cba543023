"""Baselines: other architectures on the same tasks, trainable by a short name (`--model deep-set`)."""
