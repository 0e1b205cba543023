"""Studies: runs are collected, averaged over seeds, compared, and the paper's claims judged."""
