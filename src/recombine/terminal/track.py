"""Sends a run's rows of metrics to an experiment tracker: TensorBoard, Weights & Biases or Trackio.

A tracker is optional, and never harms a run: its first error is reported in one line, and it gets nothing after that.
"""

import hashlib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from recombine.config.schema import Config
from recombine.config.toml import config_tables
from recombine.errors import InputError
from recombine.record.score import MetricsRow

TrackerName = Literal["tensorboard", "wandb", "trackio"]
PROJECT = "recombine"
MODULES = {"tensorboard": "tensorboardX", "wandb": "wandb", "trackio": "trackio"}


def tracked_values(row: MetricsRow) -> dict[str, float]:
    """The numbers of a row, by the names that trackers show: {'r2/ood': 0.8}."""
    found = {"loss": row.loss}
    for split, score in row.splits().items():
        found |= {f"r2/{split}": score.r2, f"mse/{split}": score.mse}
    if row.probe is not None:
        for split in ("in_dist", "ood"):
            if points := row.probe.split(split):
                found[f"probe/{split}"] = points[-1]
    if row.novel is not None:
        found["novel/ood"] = row.novel.ood.r2
    return {name: value for name, value in found.items() if value is not None}


class Tracker:
    """Sends rows in order, each once. The rows of a run that was trained before are sent like new ones."""

    def __init__(self, name: TrackerName, run: Path, config: Config, say: Callable[[str], None]):
        self.name, self.run, self.config, self.say = name, run, config, say
        self.sent = -1
        self.failed = False
        module = _require(name)
        self._log: Callable[[dict[str, float], int], Any] = lambda values, step: None
        self._close: Callable[[], Any] = lambda: None
        self._try(lambda: self._open(module))

    def _open(self, module: Any) -> None:
        tables = config_tables(self.config)
        if self.name == "tensorboard":
            # Rows that an earlier start has sent are sent again: TensorBoard discards the old ones.
            writer = module.SummaryWriter(str(self.run / "tensorboard"), purge_step=0)
            self._log = lambda values, step: [writer.add_scalar(name, value, step) for name, value in values.items()]
            self._close = writer.close
            return
        settings = {"project": PROJECT, "name": self.run.name, "config": tables}
        if self.name == "wandb":
            settings |= {"id": hashlib.sha256(str(self.run.resolve()).encode()).hexdigest()[:16], "resume": "allow"}
        module.init(**settings)
        self._log = lambda values, step: module.log(values, step=step)
        self._close = module.finish

    def send(self, row: MetricsRow | None) -> None:
        """Send a row, unless it has been sent."""
        if row is None or row.step <= self.sent:
            return
        self.sent = row.step
        self._try(lambda: self._log(tracked_values(row), row.step))

    def close(self) -> None:
        self._try(self._close)

    def _try(self, do: Callable[[], Any]) -> None:
        if self.failed:
            return
        try:
            do()
        except Exception as error:
            self.failed = True
            why = next(iter(str(error).splitlines()), "")
            self.say(f"{self.name} no longer gets the metrics of {self.run.name}: {type(error).__name__}: {why}")


def _require(name: TrackerName) -> Any:
    try:
        return import_module(MODULES[name])
    except ImportError as error:
        raise InputError("track", name, f"is not installed: pip install 'recombine[{name}]'") from error
