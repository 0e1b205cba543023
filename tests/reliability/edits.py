"""Edits of a file: a number changed by hand, a bit flipped, an end or the whole lost."""

from pathlib import Path

EDITS = ("digit", "bit", "truncate", "empty", "delete", "rows swapped")


def damage(path: Path, how: str, place: float) -> bool:
    """Change a file, if it is there; whether anything changed."""
    if not path.is_file():
        return False
    data = path.read_bytes()
    at = int(place * len(data))
    changed = bytearray(data)
    match how:
        case "digit":  # a number is another number: what an edit by hand does
            digits = [i for i, byte in enumerate(data) if chr(byte).isdigit()]
            if digits:
                chosen = digits[int(place * len(digits))]
                changed[chosen] = ord("0") + (data[chosen] - ord("0") + 3) % 10
        case "bit" if data:
            changed[at] ^= 1 << at % 8
        case "truncate":
            changed = changed[:at]
        case "empty":
            changed = bytearray()
        case "delete":
            path.unlink()
            return True
        case "rows swapped":
            changed = bytearray(b"".join(sorted(data.splitlines(keepends=True), reverse=True)))
        case _:
            pass
    if changed == data:
        return False
    path.write_bytes(bytes(changed))
    return True
