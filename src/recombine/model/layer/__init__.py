"""The layers of the models."""
