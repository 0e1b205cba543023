"""How numbers, signs and references are written for people, on the page and in Markdown."""

SIGNS = {">=": "≥", "<=": "≤", "within": "within ±"}
POWERS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
REFERENCE_NAMES = {
    "context_mean": "context mean",
    "nearest_neighbours": "nearest neighbours",
    "ridge": "ridge",
    "fitted_network": "fitted network",
    "trained_task": "best trained task",
    "trained_covariance": "trained covariance",
    "oracle": "oracle",
    "known_latent": "known latent",
}


def number(value: float | None) -> str:
    """Three digits, with a real minus."""
    if value is None:
        return "–"
    return f"{value:.3f}".replace("-", "−") if 1e-3 <= abs(value) < 1000 or value == 0 else short(value)


def short(value: float) -> str:
    """As few digits as say it: 0.5, −2, 3.2·10⁻⁷."""
    digits, _, exponent = f"{value:.2g}".partition("e")
    power = f"·10{str(int(exponent)).translate(POWERS)}" if exponent else ""
    return digits.replace("-", "−") + power


def fixed(value: float) -> str:
    """Three digits, whatever the size: what is next to nothing beside 1 is 0."""
    return f"{value:.3f}".replace("-0.000", "0.000").replace("-", "−")
