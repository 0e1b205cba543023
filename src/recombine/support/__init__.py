"""Masks and supports: which combinations of modules are trained on, and which are held out.

This room does not need JAX.
"""
