"""Training: the optimiser, the training step, and the loop that yields snapshots."""

import sys
from types import ModuleType


class _CallableRoom(ModuleType):
    """`rc.train(…)` trains a model, and `recombine.train.step` is a file of this room: the two share a name."""

    def __call__(self, *args: object, **options: object) -> object:
        """Train one model and store it in a run directory: see `recombine.notebook.train.train`."""
        from importlib import import_module

        return import_module("recombine.notebook.train").train(*args, **options)


sys.modules[__name__].__class__ = _CallableRoom
