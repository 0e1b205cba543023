"""How long runs would take on this machine: some steps of some of them are timed."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from recombine.config import Config, OptimizerConfig, TrunkConfig
from recombine.experiment.evaluate import examination, measurements
from recombine.train.flops import step_flops
from recombine.train.loop import train
from recombine.train.step import compiled_part, config_tasks, init_state

SECONDS_OF_STEPS = 2.0
EPISODES = 2_000  # measured on, at most
MOST_TIMED = 8


class Cost(NamedTuple):
    """Of one run, in seconds: before the first step is done, of a step, and of measuring an episode of each split."""

    start: float
    step: float
    episode: float


def seconds_per_run(configs: Sequence[Config], say: Callable[[str], None]) -> list[float]:
    """Configurations of equal cost are timed once; where they are many, a few are, and the others placed between them.

    A run's references and its scorecard are not in it: minutes at the paper's size, of hours.
    """
    examples = {_shape(config): config for config in reversed(configs)}
    costs = _costs(examples, say)
    return [_seconds(config, costs[_shape(config)]) for config in configs]


def _shape(config: Config) -> Config:
    """The configuration without all that the time of a step does not depend on."""
    plain = OptimizerConfig(batch_size=config.optimizer.batch_size, weight_decay=0.0)
    return replace(compiled_part(config), optimizer=plain)


def _costs(examples: Mapping[Config, Config], say: Callable[[str], None]) -> dict[Config, Cost]:
    counted = {shape: step_flops(shape) for shape in examples if isinstance(shape.model, TrunkConfig)}
    by_flops = sorted(counted, key=lambda shape: counted[shape])
    chosen = np.unique(np.linspace(0, len(by_flops) - 1, min(MOST_TIMED, len(by_flops))).round().astype(int))
    timed = [by_flops[i] for i in chosen] + [shape for shape in examples if shape not in counted]
    costs = {}
    for shape in timed:
        say(f"timing some steps of {shape.model.label}")
        costs[shape] = _time(examples[shape])
    marks = [counted[by_flops[i]] for i in chosen]
    for shape in by_flops:
        if shape not in costs:
            columns = zip(*(costs[by_flops[i]] for i in chosen), strict=True)
            costs[shape] = Cost(*(float(np.interp(counted[shape], marks, column)) for column in columns))
    return costs


def _seconds(config: Config, cost: Cost) -> float:
    measuring = cost.episode * config.measure.episodes * (config.measure.snapshots + 1)
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
    few = replace(config, measure=replace(config.measure, episodes=min(config.measure.episodes, EPISODES)))
    on = examination(few, tasks.teacher)
    dict(measurements(few, last.state.model, on))
    began = time.monotonic()
    dict(measurements(few, last.state.model, on))
    return Cost(compiled - started, per_step, (time.monotonic() - began) / few.measure.episodes)
