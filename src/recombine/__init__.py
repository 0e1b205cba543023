"""Recombine: can an in-context learner recombine what it knows?

The reference implementation and a benchmark of "When can transformers compositionally generalize in-context?".
Import each room by its own name (`recombine.task.episode`, `recombine.model.transformer`, …): code that does not need
JAX then never loads it.
"""

__version__ = "0.1.0"
