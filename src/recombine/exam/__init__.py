"""Predictions from any program: files of episodes, their scores, and the frozen benchmark."""
