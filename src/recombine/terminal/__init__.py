"""The output of commands in the terminal: tables, progress, Markdown."""
