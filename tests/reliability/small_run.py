"""A run that takes a second, a user's model for it, and a count of the programs that JAX compiles."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import indent

import jax

from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.config.toml import override
from recombine.run.training import RunOptions, execute_run

NUM_STEPS = 12

SMALL = {
    "task": {"input_dim": 2, "hidden_dim": 2, "episode_length": 3},
    "model": {"embed_dim": 4, "num_heads": 1, "num_layers": 1, "ffn_factor": 1},
    "optimizer": {"num_steps": NUM_STEPS, "batch_size": 2},
    "measure": {"episodes": 4, "snapshots": 3},
}


def small_config(**changes) -> Config:
    return override(override(preset_config("smoke", "transformer"), SMALL), changes)


def finish(path: Path, config: Config | None = None, **options) -> list[str]:
    """Run to the end, saving after every dispatch. Returns the messages."""
    said: list[str] = []
    for _ in execute_run(config or small_config(), path, RunOptions(save_every=0.0, **options), say=said.append):
        pass
    return said


def without_copies(path: Path) -> None:
    """Remove a run's checkpoints, whose copies of configuration and metrics would be used instead of the files."""
    shutil.rmtree(path / "checkpoints")


def result(path: Path) -> dict[str, bytes]:
    """The bytes that do not depend on the clock: the configuration, the metrics, the last state."""
    newest = max((path / "checkpoints").glob("step-*"))
    files = [path / "config.toml", path / "metrics.jsonl", newest / "state.safetensors", newest / "metrics.jsonl"]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


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


COMPILED = "/jax/core/compile/backend_compile_duration"


@contextmanager
def compiled_programs() -> Iterator[list[str]]:
    """A list that has one entry for each program that is compiled inside."""
    found: list[str] = []
    inside = True

    def listen(event: str, seconds: float, **_: object) -> None:
        if inside and event == COMPILED:
            found.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        inside = False  # JAX has no public way to take a listener back
