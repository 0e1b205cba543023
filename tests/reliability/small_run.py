"""A run that takes a second, and the files by which two runs are compared."""

import shutil
from pathlib import Path

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
