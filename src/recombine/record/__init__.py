"""Typed records of what a run stores, with JSON in and out in one place. No JAX here."""
