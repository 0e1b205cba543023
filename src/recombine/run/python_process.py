"""The command of a Python process of ours, which imports nothing from the current directory."""

import sys

PYTHON = (sys.executable, "-P")
"""`-P`: without it, `python -m` puts the current directory first on the path, and files there would be imported."""


def python_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module."""
    return [*PYTHON, "-m", module, *arguments]
