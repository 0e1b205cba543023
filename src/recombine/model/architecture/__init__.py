"""Other architectures on the same tasks: the baselines, trainable by a short name (`--model deep-set`)."""
