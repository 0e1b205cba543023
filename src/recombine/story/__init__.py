"""The story: the finding as an explorable page, with the models in it."""
