"""The web server and its page (`static/`): watch runs live, and play with trained models."""
