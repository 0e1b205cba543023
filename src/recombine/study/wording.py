"""The wording of numbers, models, splits, references and verdicts in reports and tables."""

from collections.abc import Iterable, Sequence
from statistics import fmean

from recombine.config.model import EXPLICIT
from recombine.study.interval import band

KNOWN_MODELS = ("transformer", "hypertransformer", "informed")
SPLIT_WORDS = {
    "in_dist": "in distribution",
    "ood": "held-out masks",
    "control": "control",
    "control_modules": "fresh modules",
}
REFERENCE_WORDS = {
    "context_mean": "context mean",
    "nearest_neighbours": "nearest neighbours",
    "ridge": "ridge",
    "fitted_network": "fitted network",
    "trained_task": "best trained task",
    "trained_covariance": "trained covariance",
    "oracle": "oracle",
    "known_latent": "known latent",
}
VERDICT_MARKS = {"holds": "✓", "does not hold": "✗", "not enough data": "?"}
COMPARISON_SIGNS = {">=": "≥ ", "<=": "≤ ", "within": "within ±"}
POWERS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def excluded(comparison: str, bound: float | None, state: str) -> str:
    """The effects that the seeds exclude, where a statistic does not hold: 'more than 0.042 is excluded'."""
    if bound is None or state == "holds":
        return ""
    side = {">=": "more than", "<=": "less than", "within": "a difference of more than"}[comparison]
    return f"{side} {number(bound)} is excluded"


def ordered_models(names: Iterable[str]) -> list[str]:
    """The paper's models first, then explicit inference, then all others by name: the order of legends and tables."""
    present = set(names)
    known = [name for name in KNOWN_MODELS if name in present]
    others = sorted(present - set(KNOWN_MODELS), key=lambda name: (not name.startswith(EXPLICIT), name))
    return known + others


def module_name(module: int) -> str:
    """θ₁ for module 1."""
    return f"θ{str(module).translate(SUBSCRIPTS)}"


def mask_name(mask: str) -> str:
    """The modules that a mask such as 100100 uses: θ₁+θ₄. Other texts, and a mask without modules, stay as they are."""
    active = [module_name(m) for m, bit in enumerate(mask, start=1) if bit == "1"]
    return "+".join(active) if active and set(mask) <= set("01") else mask


def number(value: float | None) -> str:
    """A number with three decimals and a real minus sign; – for None."""
    if value is None:
        return "–"
    value += 0.0  # −0.0 has no sign
    return f"{value:.3f}".replace("-", "−") if 1e-3 <= abs(value) < 1000 or value == 0 else short(value)


def short(value: float) -> str:
    """A number with at most two significant digits: 0.5, −2, 3.2·10⁻⁷."""
    digits, _, exponent = f"{value:.2g}".partition("e")
    power = f"·10{str(int(exponent)).translate(POWERS)}" if exponent else ""
    return digits.replace("-", "−") + power


def fixed(value: float) -> str:
    """A number with three decimals, whatever its size: tiny numbers become 0.000."""
    return f"{value:.3f}".replace("-0.000", "0.000").replace("-", "−")


def mean_and_band(values: Sequence[float]) -> tuple[str, str]:
    """The mean and the band, ('0.912', '[0.902, 0.921]'). The band is empty for one seed, or if all seeds agree."""
    if not values:
        return "–", ""
    mean = fixed(fmean(values))
    ends = [fixed(end) for end in band(values) or ()]
    return mean, "" if set(ends) <= {mean} else f"[{', '.join(ends)}]"


def with_band(values: Sequence[float]) -> str:
    """The mean and the band in one text: '0.912 [0.902, 0.921]'."""
    return " ".join(filter(None, mean_and_band(values)))


def percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")
