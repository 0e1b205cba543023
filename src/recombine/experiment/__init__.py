"""Experiments: runs, and what is measured on them."""
