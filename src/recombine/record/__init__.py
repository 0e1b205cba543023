"""Typed records of everything that a run stores, and their conversion to and from JSON. No JAX here."""
