"""`python -m recombine`, the same as `recombine`."""

import os
import sys


def main() -> int:
    from recombine.cli.main import main

    return main()


def forget_current_directory() -> None:
    """Remove the current directory from `sys.path`, where Python puts it first: files there must not be imported.

    This function may use only modules that Python has loaded already: any other import could load a file from there.
    """
    try:
        here = os.getcwd()  # noqa: PTH109 (pathlib is not loaded yet)
    except OSError:  # the directory was removed: Python has not added it
        return
    if not sys.flags.safe_path and sys.path[:1] == [here]:
        del sys.path[0]


if __name__ == "__main__":
    forget_current_directory()
    sys.exit(main())
