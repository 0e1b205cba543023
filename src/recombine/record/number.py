"""Types of the numbers and names in records, with bounds that every real measurement satisfies.

A file can contain anything. Values outside these bounds are refused when the file is read, so that later no sum
overflows, no logarithm fails, and no impossible name is looked up.
"""

from typing import Annotated

from msgspec import Meta

from recombine.checks import LARGEST_COUNT, NUM_SEEDS

LARGEST = 1e100  # squared errors of float32 numbers stay far below

Real = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Positive = Annotated[float, Meta(ge=0, le=LARGEST)]
Count = Annotated[int, Meta(ge=0, le=LARGEST_COUNT)]
"""Steps, episodes, devices."""
Seed = Annotated[int, Meta(ge=0, lt=NUM_SEEDS)]
MaskName = Annotated[str, Meta(pattern=r"^[01]+\Z")]
"""A mask as text, such as `110000`."""
NumModules = Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,3}\Z")]
"""A number of active modules as a JSON key, such as `2`."""
