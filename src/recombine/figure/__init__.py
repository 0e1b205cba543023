"""Charts: every panel and figure of the reports, in one visual theme."""
