"""Seals: a stored result carries a digest of its own content, and one of the code that measured it.

An edited or damaged result is refused, and a result of other code is not mistaken for one of the current code.
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
    """`UNKNOWN` for a result that was stored before digests existed."""

    def measured_by(self, sources: str) -> bool:
        """Whether the code of this digest measured the result. An unknown digest counts as a match."""
        return self.sources in (UNKNOWN, sources)


class _Seal(Record, frozen=True):
    """The two fields that sealing adds to a file."""

    sources: str = UNKNOWN
    sha256: str | None = None


def seal(record: Record, sources: str) -> bytes:
    """The content of a sealed file: a result, and `sources`, the digest of the code that measured it."""
    content = storable(record) | {"sources": sources}
    return f"{json.dumps(content | {'sha256': _digest(content)}, indent=1, allow_nan=False)}\n".encode()


def unseal(data: bytes, kind: type[T]) -> Sealed[T]:
    """The result in a sealed file. Raises `BadRecord` if the file has changed since it was written."""
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
        raise BadRecord("the content does not match its digest: the file was edited or damaged")
    return Sealed(decode(data, kind), found.sources)


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()
