"""One panel of a figure: its texts, its numbers, and the visible range of its values."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from recombine.study.series import Series, X

FLOORS = (0.0, -0.5)
TRAINING_FLOORS = (0.5, *FLOORS)
EARLY = 0.1  # this fraction of the training does not influence the visible range
R2 = "R²"
SMALLEST = 1e-100  # smaller losses are not drawn on a logarithmic axis


@dataclass(frozen=True)
class Panel:
    """The texts and numbers of a panel. With `by_support`, it shows the runs of one support at a time."""

    name: str
    title: str
    subtitle: tuple[str, ...]
    series: tuple[Series, ...]
    references: tuple[Series, ...] = ()
    x_title: str = "step"
    y_title: str = R2
    dashed: tuple[str, ...] = ()  # the names of the curves that are dashed
    domain: tuple[float, float] = (0.0, 1.0)
    log: bool = False
    rows: bool = False  # categories down the side and values across, instead of curves
    by_support: bool = True


def r2_domain(series: Sequence[Series], floors: tuple[float, ...] = FLOORS) -> tuple[float, float]:
    """The visible range of R²: up to 1, and down to the first of `floors` below all values, or else to the last."""
    lowest = min((y for one in series for y in one.y if y is not None), default=0.0)
    return next((floor for floor in floors if lowest >= floor - 0.02), floors[-1]), 1.0


def training_domain(
    series: Sequence[Series], references: Sequence[Series] = (), floors: tuple[float, ...] = TRAINING_FLOORS
) -> tuple[float, float]:
    """The visible range of R² over training, which ignores the start of training and includes the references."""
    last = max((step for one in series for step in one.x if isinstance(step, int)), default=0)

    def is_later(step: X) -> bool:
        return isinstance(step, int) and step >= EARLY * last

    later = [replace(one, y=tuple(y for step, y in zip(one.x, one.y, strict=True) if is_later(step))) for one in series]
    return r2_domain([*later, *references], floors)


def loss_domain(series: Sequence[Series], largest: float | None) -> tuple[float, float]:
    """The visible range of a loss: all values, but no higher than `largest`."""
    values = [y for one in series for y in one.y if y is not None and y > SMALLEST]
    if not values:
        return 0.01, 1.0
    low, high = min(values) / 1.15, max(values) * 1.15
    return low, max(min(high, largest or high), low * 2)
