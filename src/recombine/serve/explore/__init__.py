"""The explorer: what trained models make of a task that a visitor composes."""
