"""Predictions from any program: files of episodes, and the scores of the predictions for them."""
