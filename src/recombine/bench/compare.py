"""The comparison: speed and memory of a training step, ours and the peers', and the limit."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from recombine.bench.contender import ONE_THREAD, OWN, PEERS, SIDE_BY_SIDE, enter, enter_limits
from recombine.bench.matmul import Job as MatmulJob
from recombine.bench.race import Report, Result, race
from recombine.config.schema import Config
from recombine.train.flops import step_flops

# These do the fast path's arithmetic on all threads, so that its count and the machine's limit apply.
FAST = ("fast", "fast_sharded", SIDE_BY_SIDE)


def compare(
    config: Config, contenders: Sequence[str], threads: int, steps: int, repeats: int, report: Report
) -> dict[str, Any]:
    """Race the contenders and the machine's own matrix products, and sum up."""
    limits = enter_limits(config, threads)
    entries = [*limits, *(enter(name, config, threads) for name in contenders)]
    results = race(entries, steps, repeats, report)
    return sum_up(config, results, {entry.name: MatmulJob(**entry.job) for entry in limits})


def sum_up(config: Config, results: Mapping[str, Result], limits: Mapping[str, MatmulJob]) -> dict[str, Any]:
    """Medians over the rounds. A ratio is the median of the rounds' ratios: what slows a round slows both sides."""
    batch_size, flops = config.optimizer.batch_size, step_flops(config)
    rates = {
        name: round_rates(result, limits[name].flops if name in limits else batch_size)
        for name, result in results.items()
        if result.finished
    }
    limit = max((name for name in limits if name in rates), key=lambda name: median(rates[name]), default=None)
    peer = max((name for name in PEERS if name in rates), key=lambda name: median(rates[name]), default=None)

    def ratio(name: str, other: str | None) -> float | None:
        return median_ratio(rates[name], rates[other]) if name in rates and other in rates else None

    contenders = {}
    for name, result in results.items():
        if name in limits:
            continue
        contenders[name] = outcome(result)
        if name not in rates:
            continue
        contenders[name]["episodes_per_second"] = spread(rates[name])
        if name in OWN + PEERS:  # one run on all threads; the others answer other questions
            contenders[name]["times_plain"] = ratio(name, "plain")
            contenders[name]["times_fastest_peer"] = ratio(name, peer)
        if name in OWN:
            contenders[name]["times_peers"] = {other: ratio(name, other) for other in PEERS if other in rates}
        if name == SIDE_BY_SIDE:
            contenders[name]["processes"] = len(result.ready)
            contenders[name]["times_one_process"] = ratio(name, ONE_THREAD)
        if name in FAST and limit is not None:
            reached = [rate * flops / batch_size for rate in rates[name]]
            contenders[name]["fraction_of_limit"] = median_ratio(reached, rates[limit])
    return {
        "model": config.model.kind,
        "length": config.task.episode_length,
        "batch_size": batch_size,
        "step_flops": flops,
        "fastest_peer": peer,
        "limit": {
            "name": limit,
            **{
                name: {
                    **outcome(results[name]),
                    "shape": [job.rows, job.inner, job.columns],
                    "flops_per_second": spread(rates[name]) if name in rates else None,
                }
                for name, job in limits.items()
            },
        },
        "contenders": contenders,
    }


def round_rates(result: Result, per_step: float) -> list[float]:
    """What was done per second in each round, summed over the processes."""
    return [sum(turn["steps"] * per_step / turn["seconds"] for turn in turns) for turns in result.rounds]


def median_ratio(rates: Sequence[float], others: Sequence[float]) -> float:
    return median(rate / other for rate, other in zip(rates, others, strict=True))


def spread(values: Sequence[float]) -> dict[str, Any]:
    return {"median": median(values), "least": min(values), "most": max(values), "all": list(values)}


def outcome(result: Result) -> dict[str, Any]:
    """What there is to say of a contender besides its speed; memory is summed over its processes."""
    if result.missing is not None:
        return {"status": "missing", "reason": result.missing}
    if result.failed is not None:
        return {"status": "failed", "reason": result.failed}
    first, last = result.ready[0], result.rounds[-1]
    return {
        "status": "measured",
        "peak_bytes": _total([turn["peak_bytes"] for turn in last]),
        "import_bytes": _total([ready["import_bytes"] for ready in result.ready]),
        "import_seconds": first["import_seconds"],
        "setup_seconds": first["setup_seconds"],
        "first_step_seconds": first["first_step_seconds"],
        "last_loss": last[0]["loss"],
        "versions": first["versions"],
    }


def _total(sizes: Sequence[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
