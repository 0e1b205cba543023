"""Runs read back and compared: collected, averaged over seeds, judged."""
