"""The demo: trained models that are shipped with Recombine, in the archives of two studies.

The wheel contains the archives. A checkout has them in `evidence/`, from where the wheel is built (pyproject.toml).
"""

from pathlib import Path

import recombine
from recombine.errors import InputError

STUDIES = ("paper", "quick")
ARCHIVE = "seed0.zip"


def demo_archives() -> dict[str, Path]:
    """The archive of each study, by the study's name."""
    package = Path(recombine.__file__).parent
    for place in (package / "demo", package.parents[1] / "evidence"):
        found = {study: (place / study / ARCHIVE).resolve() for study in STUDIES}
        if all(path.is_file() for path in found.values()):
            return found
    raise InputError("demo", str(package / "demo"), "the trained models are missing; install Recombine again")


def demo_directory() -> Path:
    """The directory above the studies' directories."""
    return demo_archives()[STUDIES[0]].parents[1]
