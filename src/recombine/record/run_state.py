"""The records of a run's state: `status.json`, `env.json` and `timing.jsonl`."""

from typing import Any, Literal

import msgspec

from recombine.code_digest import UNKNOWN
from recombine.record.codec import Count, Record

RunState = Literal["running", "done", "stopped", "interrupted", "failed", "unknown"]


class Status(Record, frozen=True, omit_defaults=True):
    """`status.json`: how far the run has come, and how it ended."""

    state: RunState
    step: Count
    num_steps: Count
    process: int = 0
    error: str | None = None
    model: str = ""
    """The model's label, as in tables and figures; empty in files that were written before it was stored."""


class Identity(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Everything besides the configuration that affects a run's bits. Resuming with another identity is refused."""

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
    """A digest of the processor's instruction sets."""
    devices: Count
    threads: Count
    xla_flags: str
    together: int = 1
    """The number of runs that one vmapped program trained. The field keeps the name it has in stored files."""
    sources: str = UNKNOWN
    """A digest of the code that trains and measures; empty for runs that were made before it was recorded."""
    model_sources: str = UNKNOWN
    """A digest of a custom model's code: its module, and what that module imports from the user's own directories."""
    task_sources: str = UNKNOWN
    """A digest of a custom task's code, made in the same way."""
    framework: str = ""
    """The framework of a custom model and its version, such as 'torch 2.13.0'; empty for an Equinox model."""
    start: str = ""
    """A digest of the parameters that training started from; empty for random ones. It is fixed at the first start:
    a run that resumes does not read them again."""


class Start(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One start of a run: its first step, and the software and machine that it ran on."""

    step: Count
    identity: Identity
    python: str = ""
    system: str = ""
    cores: int = 0
    commit: str = ""
    """The git commit of Recombine, followed by `+` if files had changed since; empty outside a checkout."""
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    command: tuple[str, ...] = ()


class Change(Record, frozen=True):
    """The differences that `--resume-anyway` accepted: each field with its old and new value."""

    step: Count
    fields: dict[str, tuple[Any, Any]]


class Environment(Record, frozen=True):
    """`env.json`: every start of the run, and every change that was accepted on resuming."""

    starts: tuple[Start, ...] = ()
    changes: tuple[Change, ...] = ()


class TimingRow(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One row of `timing.jsonl`: seconds spent in each phase since the previous row, throughput, memory."""

    step: Count
    seconds: dict[str, float]
    processor_seconds: float | None = None
    """Of all threads, in all phases: a busy machine changes it little. Older runs do not have it."""
    steps_per_second: float | None = None
    episodes_per_second: float | None = None
    peak_memory_bytes: int
