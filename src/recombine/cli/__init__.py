"""The commands of `recombine`.

JAX takes seconds to import, so it is imported only after the arguments have been checked.
"""
