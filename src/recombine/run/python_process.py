"""The command for starting a Python process of Recombine that imports nothing from the current directory."""

import sys

PYTHON = (sys.executable, "-P")
"""Without `-P`, `python -m` puts the current directory first on the path, and would import files from there."""


def python_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module."""
    return [*PYTHON, "-m", module, *arguments]
