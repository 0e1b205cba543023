"""`python -m recombine`, the same as `recombine`."""

import sys

from recombine.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
