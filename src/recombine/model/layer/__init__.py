"""The layers that the models are built of."""
