"""The results of the benchmark, as `recombine bench --json` prints them."""

from collections.abc import Sequence
from statistics import median

from msgspec import UNSET, UnsetType

from recombine.bench.message import Failed, Missing
from recombine.record.codec import Record
from recombine.record.run_state import Start


class Spread(Record, frozen=True):
    """A number that was measured several times."""

    median: float
    least: float
    most: float
    all: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(median(values), min(values), max(values), tuple(values))


class Measured(Record, frozen=True, kw_only=True, tag_field="status", tag="measured"):
    """The memory and the start of a contender or of a limit that finished the race."""

    peak_bytes: int | None
    """The peak of the resident memory, summed over the processes."""
    import_bytes: int | None
    """The memory that the libraries take by themselves, summed over the processes."""
    import_seconds: float
    setup_seconds: float
    first_step_seconds: float
    last_loss: float
    versions: dict[str, str]


class MeasuredContender(Measured, frozen=True, kw_only=True, omit_defaults=True, tag="measured"):
    """A contender that finished. A ratio is unset where it would compare unlike things, and None where the contender
    to compare with did not finish."""

    episodes_per_second: Spread
    times_plain: float | UnsetType | None = UNSET
    """How many times as fast as `plain`. Like the next field, only for contenders that do one run on all threads."""
    times_fastest_peer: float | UnsetType | None = UNSET
    times_peers: dict[str, float] | None = None
    """How many times as fast as each peer; for our contenders that do one run on all threads."""
    times_fast: float | UnsetType | None = UNSET
    """How many times as fast as `fast`; for contenders with explicit inference."""
    processes: int | None = None
    """The number of processes. Like the next field, only for the contender that has several."""
    times_one_process: float | UnsetType | None = UNSET
    fraction_of_limit: float | None = None
    """For contenders that do the arithmetic of the fast path on all threads."""

    @property
    def is_one_run(self) -> bool:
        """Whether it does one run on all threads, and so compares with the others that do."""
        return self.times_plain is not UNSET


ContenderOutcome = MeasuredContender | Missing | Failed

Shape = tuple[int, int, int]
"""Rows, inner and columns of a matrix product."""


class MeasuredLimit(Measured, frozen=True, kw_only=True, tag="measured"):
    """The rate of a library's matrix products."""

    shape: Shape
    flops_per_second: Spread


class MissingLimit(Missing, frozen=True, tag="missing"):
    shape: Shape
    flops_per_second: None = None


class FailedLimit(Failed, frozen=True, tag="failed"):
    shape: Shape
    flops_per_second: None = None


LimitOutcome = MeasuredLimit | MissingLimit | FailedLimit


class Limits(Record, frozen=True, omit_defaults=True):
    """How fast the machine multiplies matrices."""

    name: str | None
    """The name of the fastest library, which sets the limit. None if none was measured."""
    numpy_matmul: LimitOutcome | None = None
    jax_matmul: LimitOutcome | None = None

    def measured(self) -> dict[str, MeasuredLimit]:
        limits = {"numpy_matmul": self.numpy_matmul, "jax_matmul": self.jax_matmul}
        return {name: limit for name, limit in limits.items() if isinstance(limit, MeasuredLimit)}


class Comparison(Record, frozen=True):
    """The contenders at one model and one episode length."""

    model: str
    length: int
    batch_size: int
    step_flops: int
    fastest_peer: str | None
    limit: Limits
    contenders: dict[str, ContenderOutcome]

    def measured(self) -> dict[str, MeasuredContender]:
        return {name: row for name, row in self.contenders.items() if isinstance(row, MeasuredContender)}


class ScalingPoint(Record, frozen=True):
    """The seconds of a training step at one value of a field."""

    value: int
    seconds: float


class Sweep(Record, frozen=True):
    """The cost of a training step as one field of the configuration grows."""

    field: str
    points: tuple[ScalingPoint, ...]
    failures: dict[int, str]
    """The reason, for each value that could not be measured."""
    exponent: float | None
    """The a of cost ∝ valueᵃ, fitted to the points; None for fewer than two of them."""


class Scaling(Record, frozen=True):
    """The sweeps of one model."""

    model: str
    sweeps: tuple[Sweep, ...]

    def sweep(self, field: str) -> Sweep:
        return next(sweep for sweep in self.sweeps if sweep.field == field)


class SecondsByCache(Record, frozen=True):
    """The seconds of a cold start with the compilation cache empty, and with it filled. None: all starts failed."""

    empty: Spread | None
    filled: Spread | None


class ColdStart(Record, frozen=True):
    """The time from the start of a process until its first training step is done, for one model."""

    model: str
    length: int
    seconds: SecondsByCache
    failures: tuple[str, ...]


class Benchmark(Record, frozen=True, kw_only=True):
    """Everything that one call of `recombine bench` has measured."""

    preset: str
    steps: int
    repeats: int
    threads: int
    comparisons: tuple[Comparison, ...]
    scaling: tuple[Scaling, ...] | None
    """None if not requested. The same holds for the next field."""
    cold_starts: tuple[ColdStart, ...] | None
    environment: Start
