"""Types of arguments that several commands have, as their help shows them."""

from pathlib import Path
from typing import Annotated

import tyro

OptionalInt = Annotated[int | None, tyro.conf.arg(metavar="INT")]
OptionalPath = Annotated[Path | None, tyro.conf.arg(metavar="PATH")]
