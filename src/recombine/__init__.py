"""Recombine: can an in-context learner recombine what it knows?

The reference implementation and a benchmark of "When can transformers compositionally generalize in-context?".

    import recombine as rc

has the names that a notebook needs (`dir(rc)`; docs/python.md). Each is loaded when it is first used, so that importing
Recombine takes no time. Everything else is imported from its room, such as `recombine.model.transformer`.
"""

__version__ = "0.2.0"

_PLACES = {
    "load": "notebook.load",
    "runs": "notebook.collection",
    "configure": "notebook.configure",
    "sample": "notebook.sample",
    "predict": "notebook.predict",
    "patch": "notebook.predict",
    "examine": "notebook.examine",
    "draw": "notebook.collection",
    "Config": "config.schema",
    "Output": "model.interface",
    "Trace": "model.interface",
    "InputError": "errors",
}

__all__ = ["__version__", "train", *_PLACES]  # pyright: ignore[reportUnsupportedDunderAll] (see __init__.pyi)


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name == "train":  # a room that can be called
        return import_module(f"{__name__}.train")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
