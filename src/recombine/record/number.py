"""The numbers and names that records hold, within the bounds that every measurement keeps.

A file can hold anything. What is beyond these bounds is refused where it is read, so that no sum overflows later on, no
logarithm fails, and no name is looked up that cannot be there.
"""

from typing import Annotated

from msgspec import Meta

from recombine.checks import LARGEST_COUNT, NUM_SEEDS

LARGEST = 1e100  # errors of float32 numbers, squared, stay far below

Real = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Positive = Annotated[float, Meta(ge=0, le=LARGEST)]
Count = Annotated[int, Meta(ge=0, le=LARGEST_COUNT)]
"""Steps, episodes, devices."""
Seed = Annotated[int, Meta(ge=0, lt=NUM_SEEDS)]
MaskName = Annotated[str, Meta(pattern=r"^[01]+\Z")]
"""A mask as a word: `110000`."""
NumModules = Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,3}\Z")]
"""A number of active modules, as a key: `2`."""
