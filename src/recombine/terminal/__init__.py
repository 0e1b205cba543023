"""What commands print: tables, progress, Markdown."""
