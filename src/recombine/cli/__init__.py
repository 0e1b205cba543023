"""The commands.

JAX takes seconds to import, so nothing here imports it before the arguments have been found good.
"""
