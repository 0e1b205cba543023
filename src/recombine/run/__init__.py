"""One run: trained, measured and saved; resumed, loaded, examined, exported."""
