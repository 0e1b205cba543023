"""The state of a run, as its directory tells it: `status.json`, `env.json` and `timing.jsonl`."""

from typing import Any, Literal

import msgspec

from recombine.code_digest import UNKNOWN
from recombine.record.codec import Record
from recombine.record.number import Count

RunState = Literal["running", "done", "stopped", "interrupted", "failed", "unknown"]


class Status(Record, frozen=True, omit_defaults=True):
    """`status.json`: how far the run is, and how it ended."""

    state: RunState
    step: Count
    num_steps: Count
    process: int = 0
    error: str | None = None


class Identity(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that the bits of a run depend on besides its configuration. Resuming with another is refused."""

    recombine: str
    jax: str
    jaxlib: str
    numpy: str
    optax: str
    equinox: str
    x64: bool
    platform: str
    device: str
    features: str = ""
    """A digest of what the processor can do."""
    devices: Count
    threads: Count
    xla_flags: str
    together: int = 1
    """How many runs one vmapped program trained. The name is that of the files on disk."""
    sources: str = UNKNOWN
    """A digest of the package's code that trains and measures; empty for runs made before it was recorded."""
    model_sources: str = UNKNOWN
    """The same of a custom model's code: its module, and what that imports from the user's own directories."""


class Start(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One start of a run: from which step, with what."""

    step: Count
    identity: Identity
    python: str = ""
    system: str = ""
    cores: int = 0
    commit: str = ""
    """Of Recombine, where it runs from a git checkout; `+` behind it where files had been changed since."""
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    command: tuple[str, ...] = ()


class Change(Record, frozen=True):
    """What `--resume-anyway` accepted: the fields that differ, before and after."""

    step: Count
    fields: dict[str, tuple[Any, Any]]


class Environment(Record, frozen=True):
    """`env.json`: what made the run."""

    starts: tuple[Start, ...] = ()
    changes: tuple[Change, ...] = ()


class TimingRow(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One row of `timing.jsonl`: the seconds of each phase since the row before, throughput, memory."""

    step: Count
    seconds: dict[str, float]
    steps_per_second: float | None = None
    episodes_per_second: float | None = None
    peak_memory_bytes: int
