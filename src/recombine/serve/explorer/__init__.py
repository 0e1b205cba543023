"""The explorer: trained models run on a task that a visitor composed. It has its own process."""
