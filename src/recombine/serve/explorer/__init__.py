"""The explorer: runs trained models on a task that a visitor composed, in its own process."""
