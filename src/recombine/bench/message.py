"""Messages between the benchmark and the process of a contender, in JSON."""

from recombine.bench.setting import Setting
from recombine.record.codec import Record


class Order(Record, frozen=True):
    """The first message to a process: the module of the contender, and the setting to train."""

    module: str
    setting: Setting


class Ready(Record, frozen=True, tag_field="status", tag="ready"):
    """A contender has done its first step: the seconds it took, and bytes of resident memory."""

    versions: dict[str, str]
    """The versions of the packages that the contender requires."""
    import_seconds: float
    setup_seconds: float
    """From the end of the import until there is a stepper."""
    first_step_seconds: float
    """The compilation included."""
    import_bytes: int | None
    """The memory that the libraries take by themselves."""


class Turn(Record, frozen=True, tag_field="status", tag="turn"):
    """A contender has run a number of steps in one call."""

    steps: int
    seconds: float
    loss: float
    """The loss of the last step."""
    peak_bytes: int | None
    """The most resident memory since the start of the process."""


class Missing(Record, frozen=True, tag_field="status", tag="missing"):
    """A contender cannot run: something that it needs is not installed."""

    reason: str


class Failed(Record, frozen=True, tag_field="status", tag="failed"):
    """A contender has failed: it raised an error, died, or gave no answer in time."""

    reason: str


class Answer(Record, frozen=True):
    """A message from a process: `Ready` after the order, and a `Turn` after each number of steps.

    A contender that cannot continue says `Missing` or `Failed` instead, and then nothing more.
    """

    content: Ready | Turn | Missing | Failed
