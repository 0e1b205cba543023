"""Saves charts as PNG or SVG files. Equal charts give equal bytes."""

import re
import zlib
from io import StringIO
from pathlib import Path
from struct import pack, unpack

import altair as alt
import vl_convert

from recombine.files import replacing

SIGNATURE = b"\x89PNG\r\n\x1a\n"
LABEL = b"Source\0"


def save_figure(chart: alt.TopLevelMixin, *paths: Path) -> None:
    """Save a chart to one or more files, as PNG (at double resolution) or SVG by their suffix. It is drawn once."""
    drawn = StringIO()
    chart.save(drawn, format="svg")
    svg = _renumber(drawn.getvalue())
    for path in paths:
        with replacing("figure", path) as temporary:
            if path.suffix.lower() == ".svg":
                temporary.write_text(svg, encoding="utf-8")
            else:
                temporary.write_bytes(compressed(vl_convert.svg_to_png(svg, scale=2)))


def compressed(png: bytes) -> bytes:
    """The same PNG in less than half the bytes: the renderer compresses for speed."""
    chunks = _chunks(png)
    pixels = b"".join(data for name, data in chunks if name == b"IDAT")
    kept = [chunk for chunk in chunks if chunk[0] != b"IDAT"]
    # The last chunk marks the end of the file.
    return _joined([*kept[:-1], (b"IDAT", zlib.compress(zlib.decompress(pixels), 9)), kept[-1]])


def with_label(png: bytes, label: str) -> bytes:
    """The same PNG with a label in the file that says what it was drawn from."""
    first, *rest = _chunks(png)
    return _joined([first, (b"tEXt", LABEL + label.encode("ascii")), *rest])


def read_label(png: bytes) -> str | None:
    texts = (data for name, data in _chunks(png) if name == b"tEXt")
    return next((text[len(LABEL) :].decode("ascii") for text in texts if text.startswith(LABEL)), None)


def _chunks(png: bytes) -> list[tuple[bytes, bytes]]:
    """The chunks of a PNG file: their names and contents."""
    found, at = [], len(SIGNATURE)
    while at < len(png):
        (size,) = unpack(">I", png[at : at + 4])
        found.append((png[at + 4 : at + 8], png[at + 8 : at + 8 + size]))
        at += size + 12
    return found


def _joined(chunks: list[tuple[bytes, bytes]]) -> bytes:
    return SIGNATURE + b"".join(
        pack(">I", len(data)) + name + data + pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


def _renumber(svg: str) -> str:
    """Number clip paths from 0 in each file. Vega counts them per process, so equal charts would give unequal files."""
    numbers: dict[str, int] = {}
    found = re.compile(r'(?<=id="clip)\d+(?=")|(?<=url\(#clip)\d+(?=\))')
    return found.sub(lambda match: str(numbers.setdefault(match[0], len(numbers))), svg)
