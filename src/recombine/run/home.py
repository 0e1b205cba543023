"""The user's home directory, which a user may not have: as in a container that takes any user's number."""

import os
from pathlib import Path

NOWHERE = os.devnull  # as a directory, nobody can make anything in it


def settle_home() -> None:
    """Where there is no home, name one that nothing can be in: libraries ask for it, and fail without an answer.

    A directory that others can write to would not do. What is read from a home is believed, compiled programs too.
    """
    try:
        Path.home()
    except RuntimeError:
        os.environ["HOME"] = NOWHERE


def cache_directory() -> Path | None:
    """Our part of the user's cache; None where there is none."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given) / "recombine"
    settle_home()
    home = Path.home()
    return None if home == Path(NOWHERE) else home / ".cache" / "recombine"
