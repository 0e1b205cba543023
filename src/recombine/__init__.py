"""Recombine: can an in-context learner recombine what it knows?

The reference implementation and the benchmark of "When can transformers compositionally generalize
in-context?". Each room is imported by its own name (`recombine.task.episode`, `recombine.model.transformer`, …),
so that what does not need JAX does not wait for it.
"""

__version__ = "0.1.0"
