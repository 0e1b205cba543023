"""Estimates how long runs would take on this machine, by timing a few steps of some of them."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from recombine.config.model import TrunkConfig
from recombine.config.schema import Config, OptimizerConfig
from recombine.measure.snapshot import evaluation_splits
from recombine.train.flops import step_flops
from recombine.train.loop import train
from recombine.train.step import compiled_part, config_tasks, init_state

SECONDS_OF_STEPS = 2.0
FORWARD = 0.4  # the time to evaluate an episode, relative to training on it: 0.28 to 0.40 in runs of `quick`
MOST_TIMED = 8


class Cost(NamedTuple):
    """The seconds that a run takes until its first step is done, and for each further step."""

    start: float
    step: float


def seconds_per_run(configs: Sequence[Config], say: Callable[[str], None]) -> list[float]:
    """The estimated seconds of each run.

    Configurations of equal cost are timed once. If there are many, a few are timed, and the others are interpolated by
    their number of operations. References and scorecards are not included: they take minutes at the paper's size, where
    training takes hours.
    """
    examples = {_shape(config): config for config in reversed(configs)}
    costs = _costs(examples, say)
    return [_seconds(config, costs[_shape(config)]) for config in configs]


def _shape(config: Config) -> Config:
    """The configuration without the fields that the time of a step does not depend on."""
    plain = OptimizerConfig(batch_size=config.optimizer.batch_size, weight_decay=0.0)
    return replace(compiled_part(config), optimizer=plain)


def _costs(examples: Mapping[Config, Config], say: Callable[[str], None]) -> dict[Config, Cost]:
    counted = {shape: step_flops(shape) for shape in examples if isinstance(shape.model, TrunkConfig)}
    by_flops = sorted(counted, key=lambda shape: counted[shape])
    chosen = np.unique(np.linspace(0, len(by_flops) - 1, min(MOST_TIMED, len(by_flops))).round().astype(int))
    timed = [by_flops[i] for i in chosen] + [shape for shape in examples if shape not in counted]
    costs = {}
    for number, shape in enumerate(timed, 1):
        say(f"timing some steps of {shape.model.label}, {number} of {len(timed)}")
        costs[shape] = _time(examples[shape])
    marks = [counted[by_flops[i]] for i in chosen]
    for shape in by_flops:
        if shape not in costs:
            columns = zip(*(costs[by_flops[i]] for i in chosen), strict=True)
            costs[shape] = Cost(*(float(np.interp(counted[shape], marks, column)) for column in columns))
    return costs


def _seconds(config: Config, cost: Cost) -> float:
    read = config.measure.episodes * (len(evaluation_splits(config)) + 1) * (config.measure.snapshots + 1)
    measuring = FORWARD * cost.step * read / config.optimizer.batch_size
    return cost.start + cost.step * config.optimizer.num_steps + measuring


def _time(config: Config) -> Cost:
    tasks = config_tasks(config)
    started = time.monotonic()
    snapshots = train(config, tasks, init_state(config), 0, config.optimizer.num_steps)
    first = last = next(snapshots)
    compiled = now = time.monotonic()
    while now - compiled < SECONDS_OF_STEPS and last.step < config.optimizer.num_steps:
        last, now = next(snapshots), time.monotonic()
    steps = last.step - first.step
    per_step = (now - compiled) / steps if steps else compiled - started
    return Cost(compiled - started, per_step)


def total_seconds(each: Iterable[float], workers: int) -> float:
    """The total time with `workers` runs at a time, which is at least that of the longest run."""
    each = list(each)
    return max(sum(each) / workers, max(each, default=0.0))
