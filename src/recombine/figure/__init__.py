"""Charts: every panel and figure, in one theme."""
