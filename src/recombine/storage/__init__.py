"""A run on disk: written in one place, read in one place, in a directory or an archive."""
