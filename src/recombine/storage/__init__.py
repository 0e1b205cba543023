"""Runs on disk, in directories and archives: the code that writes, reads and verifies their files."""
