"""The comparison of our contenders with the peers and with the limit."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from msgspec import UNSET

from recombine.bench.contender import (
    EXPLICIT,
    ONE_THREAD,
    OURS,
    PEERS,
    SIDE_BY_SIDE,
    enter,
    enter_limits,
    limit_settings,
)
from recombine.bench.message import Missing
from recombine.bench.race import RaceResult, Report, race
from recombine.bench.result import (
    Comparison,
    ContenderOutcome,
    FailedLimit,
    LimitOutcome,
    Limits,
    MeasuredContender,
    MeasuredLimit,
    MissingLimit,
    Spread,
)
from recombine.bench.setting import MatmulSetting
from recombine.config.schema import Config
from recombine.train.flops import step_flops

# These do the arithmetic of the fast path on all threads, so that its count and the limit of the machine apply.
FAST = ("fast", "fast_sharded", SIDE_BY_SIDE)


def compare(
    config: Config, contenders: Sequence[str], threads: int, steps: int, repeats: int, report: Report
) -> Comparison:
    """Race the contenders and the matrix products of the machine, and sum up."""
    limits = limit_settings(config)
    entries = [*enter_limits(limits, threads), *(enter(name, config, threads) for name in contenders)]
    return sum_up(config, race(entries, steps, repeats, report), limits)


def sum_up(config: Config, results: Mapping[str, RaceResult], limits: Mapping[str, MatmulSetting]) -> Comparison:
    """Medians over the rounds. A ratio is the median of the rounds' ratios: a slow round is slow for both sides."""
    batch_size = config.optimizer.batch_size
    rates = Rates(
        {
            name: round_rates(result, limits[name].flops if name in limits else batch_size)
            for name, result in results.items()
            if result.finished
        }
    )
    limit, peer, flops = rates.fastest(limits), rates.fastest(PEERS), step_flops(config)
    limit_outcomes = {name: _limit_outcome(results[name], setting, rates) for name, setting in limits.items()}
    return Comparison(
        model=config.model.kind,
        length=config.task.episode_length,
        batch_size=batch_size,
        step_flops=flops,
        fastest_peer=peer,
        limit=Limits(limit, limit_outcomes.get("numpy_matmul"), limit_outcomes.get("jax_matmul")),
        contenders={
            name: _contender_outcome(result, rates, peer, limit, flops, batch_size)
            for name, result in results.items()
            if name not in limits
        },
    )


class Rates(dict[str, list[float]]):
    """For each contender and each limit that finished: the work done per second in each round."""

    def fastest(self, names: Iterable[str]) -> str | None:
        return max((name for name in names if name in self), key=lambda name: median(self[name]), default=None)

    def ratio(self, name: str, other: str | None) -> float | None:
        return median_ratio(self[name], self[other]) if name in self and other is not None and other in self else None

    def ratios(self, name: str, others: Sequence[str]) -> dict[str, float]:
        """The ratio to each of the others that finished."""
        return {other: median_ratio(self[name], self[other]) for other in others if other in self}


def round_rates(result: RaceResult, per_step: float) -> list[float]:
    """The work done per second in each round, summed over the processes."""
    return [sum(turn.steps * per_step / turn.seconds for turn in turns) for turns in result.rounds]


def median_ratio(rates: Sequence[float], others: Sequence[float]) -> float:
    return median(rate / other for rate, other in zip(rates, others, strict=True))


def _contender_outcome(
    result: RaceResult, rates: Rates, peer: str | None, limit: str | None, step_flops: int, batch_size: int
) -> ContenderOutcome:
    if result.out is not None:
        return result.out
    name, first, last = result.name, result.ready[0], result.rounds[-1]
    is_one_run = name in OURS + PEERS  # on all threads; the others answer other questions
    fraction = None
    if name in FAST and limit is not None:
        fraction = median_ratio([rate * step_flops / batch_size for rate in rates[name]], rates[limit])
    return MeasuredContender(
        peak_bytes=_total([turn.peak_bytes for turn in last]),
        import_bytes=_total([ready.import_bytes for ready in result.ready]),
        import_seconds=first.import_seconds,
        setup_seconds=first.setup_seconds,
        first_step_seconds=first.first_step_seconds,
        last_loss=last[0].loss,
        versions=first.versions,
        episodes_per_second=Spread.of(rates[name]),
        times_plain=rates.ratio(name, "plain") if is_one_run else UNSET,
        times_fastest_peer=rates.ratio(name, peer) if is_one_run else UNSET,
        times_peers=rates.ratios(name, PEERS) if name in OURS else None,
        processes=len(result.ready) if name == SIDE_BY_SIDE else None,
        times_fast=rates.ratio(name, "fast") if name in EXPLICIT else UNSET,
        times_one_process=rates.ratio(name, ONE_THREAD) if name == SIDE_BY_SIDE else UNSET,
        fraction_of_limit=fraction,
    )


def _limit_outcome(result: RaceResult, setting: MatmulSetting, rates: Rates) -> LimitOutcome:
    shape = (setting.rows, setting.inner, setting.columns)
    if result.out is not None:
        kind = MissingLimit if isinstance(result.out, Missing) else FailedLimit
        return kind(result.out.reason, shape)
    first, last = result.ready[0], result.rounds[-1]
    return MeasuredLimit(
        peak_bytes=_total([turn.peak_bytes for turn in last]),
        import_bytes=_total([ready.import_bytes for ready in result.ready]),
        import_seconds=first.import_seconds,
        setup_seconds=first.setup_seconds,
        first_step_seconds=first.first_step_seconds,
        last_loss=last[0].loss,
        versions=first.versions,
        shape=shape,
        flops_per_second=Spread.of(rates[result.name]),
    )


def _total(sizes: Sequence[int | None]) -> int | None:
    """None where one of the sizes is unknown."""
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None
