"""Scaling: how the cost of a step of the fast path grows with the sizes."""

from collections.abc import Mapping, Sequence
from math import log
from statistics import linear_regression, median

from recombine.bench.contender import enter
from recombine.bench.race import Report, race
from recombine.bench.result import Scaling, ScalingPoint, Sweep
from recombine.config.schema import Config
from recombine.config.toml import override

SWEEPS: dict[str, tuple[int, ...]] = {
    "task.episode_length": (8, 16, 32, 64, 128, 256),
    "task.input_dim": (8, 16, 32, 64),
    "model.num_layers": (1, 2, 3, 4, 5, 6),
}


def num_points(sweeps: Mapping[str, Sequence[int]] = SWEEPS) -> int:
    return sum(map(len, sweeps.values()))


def measure_scaling(
    config: Config,
    threads: int,
    steps: int,
    repeats: int,
    report: Report,
    sweeps: Mapping[str, Sequence[int]] = SWEEPS,
) -> Scaling:
    """For each field, the seconds of a step at each of its values, and the exponent fitted to them."""
    swept = [_sweep(config, field, values, threads, steps, repeats, report) for field, values in sweeps.items()]
    return Scaling(config.model.kind, tuple(swept))


def _sweep(
    config: Config, field: str, values: Sequence[int], threads: int, steps: int, repeats: int, report: Report
) -> Sweep:
    """The values take turns, like contenders."""
    section, name = field.split(".")
    names = {value: f"{name}={value}" for value in values}
    entries = [enter("fast", override(config, {section: {name: value}}), threads, names[value]) for value in values]
    results = race(entries, steps, repeats, report)
    points: list[ScalingPoint] = []
    failures: dict[int, str] = {}
    for value in values:
        result = results[names[value]]
        if result.out is None:
            points.append(ScalingPoint(value, median(turn.seconds / turn.steps for (turn,) in result.rounds)))
        else:
            failures[value] = result.out.reason
    exponent = fitted_exponent([(point.value, point.seconds) for point in points])
    return Sweep(field, tuple(points), failures, exponent)


def fitted_exponent(points: Sequence[tuple[float, float]]) -> float | None:
    """The a of cost ∝ valueᵃ: the slope of the least-squares line through the logarithms. None for a single point."""
    if len(points) < 2:
        return None
    values, costs = zip(*points, strict=True)
    return linear_regression([log(value) for value in values], [log(cost) for cost in costs]).slope
