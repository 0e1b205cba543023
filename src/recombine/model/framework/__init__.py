"""Models of other frameworks behind the interface of our own: PyTorch and Flax NNX."""
