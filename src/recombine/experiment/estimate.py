"""How long runs would take on this machine: some steps of each are timed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from recombine.config import Config
from recombine.experiment.evaluate import examination, measurements
from recombine.train.loop import train
from recombine.train.step import config_tasks, init_state

SECONDS_OF_STEPS = 2.0


def seconds_per_run(configs: Sequence[Config], say: Callable[[str], None]) -> list[float]:
    """For each configuration, from the time of a few steps and of one measurement. Equal models are timed once."""
    known: dict[Config, float] = {}
    found = []
    for config in configs:
        alike = replace(config, seed=0, task=replace(config.task, support=configs[0].task.support))
        if alike not in known:
            say(f"timing some steps of {config.model.label}")
            known[alike] = _seconds(alike)
        found.append(known[alike])
    return found


def _seconds(config: Config) -> float:
    tasks = config_tasks(config)
    started = time.monotonic()
    snapshots = train(config, tasks, init_state(config), 0, config.optimizer.num_steps)
    first = last = next(snapshots)
    compiled = now = time.monotonic()
    while now - compiled < SECONDS_OF_STEPS and last.step < config.optimizer.num_steps:
        last, now = next(snapshots), time.monotonic()
    steps = last.step - first.step
    per_step = (now - compiled) / steps if steps else compiled - started
    on = examination(config, tasks.teacher)
    dict(measurements(config, last.state.model, on))
    began_measuring = time.monotonic()
    dict(measurements(config, last.state.model, on))
    per_measurement = time.monotonic() - began_measuring
    return compiled - started + per_step * config.optimizer.num_steps + per_measurement * config.measure.snapshots
