"""Estimates how long jobs take, from the time of the same work on one of our cores.

Nothing is trained for an estimate: compiling the programs for that would take minutes. Two small programs tell within
seconds how fast this machine compiles, and how fast it multiplies matrices; everything else is scaled by that. Only a
custom model is timed, because nobody knows what it computes.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from recombine.config.model import BASELINES, CustomModelConfig, HypertransformerConfig, TrunkConfig
from recombine.config.schema import Config, OptimizerConfig
from recombine.config.toml import override, parse_toml
from recombine.jobs.protocol import Job
from recombine.measure.snapshot import evaluation_splits
from recombine.storage.reader import is_done, last_row
from recombine.storage.source import DirectorySource
from recombine.train.flops import step_flops
from recombine.train.loop import train
from recombine.train.step import compiled_part, config_tasks, init_state

# Processor seconds of the work on a core of ours, separately for each kind of work: another machine may be faster
# at one of them only. How long a program compiles hardly depends on the sizes.
OURS_COMPILES = 2.2  # the small program, as the first of a process
OURS_MULTIPLIES = 115e9  # floating-point operations a second
STEP, PER_FLOP = 5e-3, 2e-11  # a step of 128 episodes without its matrix products; each operation of these
INFERENCE_STEP = 1.5e-3  # each step of explicit inference on 128 episodes, in training
FORWARD = 0.4  # evaluating an episode, relative to training on it: 0.28 to 0.40 in runs of `quick`
START, COMPILE_RUN, COMPILE_RUN_LATENT = 1.3, 30.0, 43.0  # everything up to the first step, of `quick`; with a latent
CARD, COMPILE_CARD, CARD_LATENT, COMPILE_CARD_LATENT = 2.5, 10.0, 5.3, 17.0  # the scorecard, of `quick`
REFERENCES, COMPILE_REFERENCES = 0.026, 55.0  # for each episode of a split

SECONDS_OF_STEPS = 2.0  # for a custom model


class Cost(NamedTuple):
    """Seconds on a core of ours."""

    compiling: float = 0.0
    computing: float = 0.0


class JobCost(NamedTuple):
    """The cost of a job: until its first step, its steps and the measurements between them, and what follows."""

    start: Cost
    train: Cost = Cost()
    after: Cost = Cost()


class Speed(NamedTuple):
    """How many times as long as a core of ours this machine takes, and how many times longer because it is busy."""

    compiling: float = 1.0
    computing: float = 1.0
    busy: float = 1.0

    def seconds(self, cost: JobCost) -> float:
        return sum(self.compiling * part.compiling + self.computing * part.computing for part in cost)


class Estimate(NamedTuple):
    """The estimated seconds on this machine, if nothing else runs on it."""

    each: dict[str, float]
    """By the name of the job."""
    compiling: float
    """Of all jobs; less if the programs were compiled before."""
    total: float
    """With `workers` jobs at a time."""
    workers: int
    busy: float = 1.0
    """How many times longer it takes at the moment, because other processes use the machine."""

    def as_json(self) -> dict[str, float]:
        return {"workers": self.workers, "seconds": self.total, "compiling": self.compiling, "busy": self.busy}


def estimate(jobs: Sequence[Job], workers: int, say: Callable[[str], None]) -> Estimate:
    """The time that jobs take, with `workers` of them at a time: at least that of the longest."""
    if not jobs:
        return Estimate({}, 0.0, 0.0, workers)
    speed = measure_speed()
    costs = job_costs(jobs, lambda config: _time_step(config, say) / speed.computing)
    each = {name: speed.seconds(cost) for name, cost in costs.items()}
    compiling = speed.compiling * sum(part.compiling for cost in costs.values() for part in cost)
    total = max(sum(each.values()) / workers, max(each.values()))
    return Estimate(each, compiling, total, workers, speed.busy)


def job_costs(jobs: Iterable[Job], step_seconds: Callable[[Config], float] | None = None) -> dict[str, JobCost]:
    """The cost of each job, by its name. Programs that an earlier job has compiled are free.

    `step_seconds` gives the seconds of a step of a custom model. Without it, they are guessed.
    """
    compiled: set[Hashable] = set()
    timed: dict[Config, float] = {}

    def once(key: Hashable, seconds: float) -> float:
        if key in compiled:
            return 0.0
        compiled.add(key)
        return seconds

    def step(config: Config) -> float:
        plain = OptimizerConfig(batch_size=config.optimizer.batch_size, weight_decay=0.0)
        shape = replace(compiled_part(config), optimizer=plain)  # the time of a step depends on nothing else
        if shape not in timed:
            timed[shape] = _step_cost(config, step_seconds)
        return timed[shape]

    found = {}
    for job in jobs:
        parts = [(override(Config(), parse_toml(part.config, "job")), Path(part.path)) for part in job.parts]
        if job.kind == "references":
            found[job.name] = JobCost(_references_cost(parts[0][0], once))
            continue
        costs = [_run_cost(config, path, "scorecard" in job.after, step(config), once) for config, path in parts]
        found[job.name] = JobCost(*(_sum(column) for column in zip(*costs, strict=True)))
    return found


Once = Callable[[Hashable, float], float]


def _sum(costs: Iterable[Cost]) -> Cost:
    return Cost(*map(sum, zip(*costs, strict=True)))


def _run_cost(config: Config, path: Path, has_card: bool, step: float, once: Once) -> JobCost:
    source, num_steps = DirectorySource(path), config.optimizer.num_steps
    row = last_row(source)
    left = 0.0 if is_done(source) else max(0.0, 1.0 - (row.step / num_steps if row else 0.0))
    latent = isinstance(config.model, HypertransformerConfig | CustomModelConfig)  # a custom model may have one
    shape, start, train_cost = compiled_part(config), Cost(), Cost()
    if left:
        start = Cost(once(("run", shape, config.measure), COMPILE_RUN_LATENT if latent else COMPILE_RUN), START)
        read = config.measure.episodes * (len(evaluation_splits(config)) + 1.5) * (config.measure.snapshots + 1)
        measuring = FORWARD * step * read / config.optimizer.batch_size
        train_cost = Cost(0.0, left * (num_steps * step + measuring))
    if not has_card:
        return JobCost(start, train_cost)
    compiling = once(("card", shape, config.measure), COMPILE_CARD_LATENT if latent else COMPILE_CARD)
    return JobCost(start, train_cost, Cost(compiling, CARD_LATENT if latent else CARD))


def _references_cost(config: Config, once: Once) -> Cost:
    task = config.task
    sizes = (task.input_dim, task.hidden_dim, task.output_dim, task.episode_length)
    key = ("references", *sizes, config.measure.episodes)
    return Cost(once(key, COMPILE_REFERENCES), REFERENCES * config.measure.episodes)


def _step_cost(config: Config, step_seconds: Callable[[Config], float] | None) -> float:
    """The seconds of a training step, on a core of ours."""
    besides = config.optimizer.batch_size / 128 * STEP
    if isinstance(config.model, CustomModelConfig) and config.model.kind == BASELINES["bottleneck"]:
        known = {field.name for field in fields(HypertransformerConfig)}
        options = {name: value for name, value in config.model.options if name in known}
        config = replace(config, model=HypertransformerConfig(**options))  # it has the same trunk
    if isinstance(config.model, TrunkConfig):
        inference = INFERENCE_STEP * getattr(config.model, "inference_steps", 0) * config.optimizer.batch_size / 128
        return besides + inference + PER_FLOP * step_flops(config)
    return besides if step_seconds is None else step_seconds(config)


def measure_speed() -> Speed:
    """Compile one small program and run another, which takes a few seconds."""
    from jax.experimental.compilation_cache import compilation_cache

    caching = jax.config.jax_enable_compilation_cache  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()  # JAX decides at its first program whether there is a cache
    jnp.zeros(()).block_until_ready()
    try:
        wall, used = time.monotonic(), time.process_time()
        compiled = jax.jit(jax.grad(_small_program)).lower(jnp.zeros((2, 16, 16)), jnp.ones((32, 16))).compile()
        compiling = time.process_time() - used
        busy = (time.monotonic() - wall) / max(compiling, 1e-9)
        jax.block_until_ready(compiled(jnp.zeros((2, 16, 16)), jnp.ones((32, 16))))
        per_flop = _seconds_per_flop()
    finally:
        jax.config.update("jax_enable_compilation_cache", caching)
        compilation_cache.reset_cache()
    return Speed(compiling / OURS_COMPILES, per_flop * OURS_MULTIPLIES, max(1.0, busy))


def _small_program(weights: jax.Array, h: jax.Array) -> jax.Array:
    """Two layers of attention, random numbers and a system of equations: a little of all that a run compiles."""
    for w in weights:
        h = h + jax.nn.softmax(h @ w @ h.T) @ h @ w
        h = jnp.tanh(h) + jax.nn.gelu(h @ w)
    a = jax.random.normal(jax.random.key(0), (8, 8))
    return jnp.sum(h**2) + jnp.sum(jnp.linalg.solve(a @ a.T + jnp.eye(8), h[:8, :8]))


def _seconds_per_flop() -> float:
    """Of products of the sizes of a feedforward layer."""
    x, wide, narrow = jnp.ones((2048, 64)), jnp.full((64, 256), 1 / 64), jnp.full((256, 64), 1 / 256)

    @jax.jit  # the matrices are arguments: XLA would prepare constants for its products beforehand
    def multiply(x: jax.Array, wide: jax.Array, narrow: jax.Array, count: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, count, lambda _, x: (x @ wide) @ narrow, x)

    count, seconds = 1, 0.0
    while seconds < 0.2:
        count *= 4
        started = _clock()
        multiply(x, wide, narrow, jnp.asarray(count)).block_until_ready()
        seconds = _clock() - started
    return seconds / (count * 4 * 2048 * 64 * 256)


def _clock() -> float:
    """Processor time, which does not depend on other processes; the time of day for accelerators."""
    return time.process_time() if jax.default_backend() == "cpu" else time.monotonic()


def _time_step(config: Config, say: Callable[[str], None]) -> float:
    """The seconds of a step on this machine, measured."""
    say(f"timing some steps of {config.model.label}")
    snapshots = train(config, config_tasks(config), init_state(config), 0, config.optimizer.num_steps)
    started = _clock()
    first = last = next(snapshots)
    compiled = now = _clock()
    while now - compiled < SECONDS_OF_STEPS and last.step < config.optimizer.num_steps:
        last, now = next(snapshots), _clock()
    steps = last.step - first.step
    return (now - compiled) / steps if steps else compiled - started
