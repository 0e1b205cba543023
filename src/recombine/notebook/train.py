"""`rc.train`: trains one run, with progress, and returns it."""

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from recombine.config.model import CustomModelConfig
from recombine.config.preset import Preset
from recombine.config.schema import Config
from recombine.notebook.configure import configure
from recombine.notebook.load import Run
from recombine.run.machine import prepare
from recombine.run.signals import StopSignal
from recombine.run.training import RunOptions, execute_run
from recombine.storage.reader import read_run
from recombine.storage.source import open_run
from recombine.storage.writer import check_run_path
from recombine.terminal.output import note
from recombine.terminal.training import show_progress


def train(
    model: "str | type | Config | None" = None,
    *,
    preset: Preset = "quick",
    changes: Mapping[str, Any] | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    stop_at: int | None = None,
    resume_anyway: bool = False,
    progress: bool = True,
) -> Run:
    """Train a model, measure it during training, and store it in a run directory. The same call resumes.

    `model`, `preset`, `changes` and `seed` are those of `rc.configure`. `out` is the run directory; the default is
    runs/PRESET-MODEL-seedSEED. An interrupt (the stop button of a notebook) saves, and then raises KeyboardInterrupt.
    """
    prepare()
    config = configure(model, preset=preset, changes=changes, seed=seed)
    path = Path(out) if out is not None else Path("runs") / f"{preset}-{config.model.label}-seed{config.seed}"
    check_run_path(path)
    if isinstance(config.model, CustomModelConfig):
        from recombine.model.custom import check_custom

        check_custom(config)
    options = RunOptions(stop_at=stop_at, resume_anyway=resume_anyway)
    with _interrupts() as stop:
        if progress:
            show_progress(config, path, options, stop)
        else:
            with closing(execute_run(config, path, options, stop)) as reports:
                for _ in reports:
                    pass
    if stop.requested():
        raise KeyboardInterrupt(f"{path}: saved; the same call resumes")
    return Run(read_run(open_run(path)))


@contextmanager
def _interrupts() -> Iterator[StopSignal]:
    """A stop that the first SIGINT requests; a second one raises KeyboardInterrupt as usual."""
    stop = StopSignal()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(signum: int, frame: object) -> None:
        if stop.requested():
            raise KeyboardInterrupt
        stop.signum = signum
        note("interrupted: saving")

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
