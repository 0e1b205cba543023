"""Seals: a stored result carries a digest of itself, and one of the code that measured it.

A result that was edited or damaged is not taken for a measurement, and one that other code measured is not taken for
one of this code.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from recombine.code_digest import UNKNOWN
from recombine.record.codec import BadRecord, Record, decode, storable

T = TypeVar("T")


@dataclass(frozen=True)
class Sealed(Generic[T]):
    """A result, and the digest of the code that measured it."""

    value: T
    sources: str
    """`UNKNOWN` for a result that was stored before digests were kept."""

    def measured_by(self, sources: str) -> bool:
        """Whether it may stand for a measurement by this code. What is not known is not held against it."""
        return self.sources in (UNKNOWN, sources)


class _Seal(Record, frozen=True):
    """What a sealed file says of itself."""

    sources: str = UNKNOWN
    sha256: str | None = None


def seal(record: Record, sources: str) -> bytes:
    """The file of a result that was measured by the code of this digest."""
    content = storable(record) | {"sources": sources}
    return f"{json.dumps(content | {'sha256': _digest(content)}, indent=1, allow_nan=False)}\n".encode()


def unseal(data: bytes, kind: type[T]) -> Sealed[T]:
    """The result in a file. `BadRecord` if it is not as it was written."""
    found = decode(data, _Seal)
    if found.sha256 is None and found.sources == UNKNOWN:
        return Sealed(decode(data, kind), UNKNOWN)
    try:
        content = json.loads(data)
        content.pop("sha256", None)
        same = found.sha256 == _digest(content)
    except (ValueError, RecursionError) as error:
        raise BadRecord(str(error)) from error
    if not same:
        raise BadRecord("it is not what was written: its numbers do not have their digest")
    return Sealed(decode(data, kind), found.sources)


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()
