"""Everything about one run: train it, resume it, load it, examine it, export it."""
