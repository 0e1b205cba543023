"""A model of a user's own, in a file of the user's, which does something else besides."""

from pathlib import Path
from textwrap import indent

SOURCE = """
import equinox as eqx
import jax
import jax.numpy as jnp

from recombine.model.interface import Output, Trace

{on_import}


class Net(eqx.Module):
    scale: jax.Array

    def __init__(self, config, *, key):
{on_build}
        self.scale = jnp.full((), 0.5, jnp.float32)

    def __call__(self, context_x, context_y, query_x):
{on_call}
        return Output(self.scale * context_y.mean(), Trace())
"""


def write_model(directory: Path, name: str, on_import: str = "", on_build: str = "", on_call: str = "") -> str:
    """The file of a model that learns one number, and what `--model` calls it."""
    body = {"on_build": on_build, "on_call": on_call}
    lines = {place: indent(code or "pass", " " * 8) for place, code in body.items()}
    (directory / f"{name}.py").write_text(SOURCE.format(on_import=on_import, **lines))
    return f"{name}:Net"
