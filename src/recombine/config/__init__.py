"""The configuration of a run: its fields and their checks, TOML files, presets."""
