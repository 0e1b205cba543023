"""`python -m recombine`, the same as `recombine`."""

import os
import sys


def main() -> int:
    from recombine.cli.main import main

    return main()


def forget_current_directory() -> None:
    """Python puts the current directory first on the path; files there are data to us, and must not be imported.

    Only modules that Python itself has loaded by now are used here: any other import could load a file from there.
    """
    try:
        here = os.getcwd()  # noqa: PTH109 (pathlib is such another import)
    except OSError:  # it was removed, and Python has put nothing first
        return
    if not sys.flags.safe_path and sys.path[:1] == [here]:
        del sys.path[0]


if __name__ == "__main__":
    forget_current_directory()
    sys.exit(main())
