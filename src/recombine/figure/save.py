"""A chart as a file: PNG or SVG, equal charts as equal bytes, and no larger than need be."""

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
    """PNG (at twice the size, for dense screens) or SVG, by each name's ending; drawn once for all of them."""
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
    """The same picture in less than half the bytes: the renderer compresses for speed."""
    chunks = _chunks(png)
    pixels = b"".join(data for name, data in chunks if name == b"IDAT")
    kept = [chunk for chunk in chunks if chunk[0] != b"IDAT"]
    return _joined([*kept[:-1], (b"IDAT", zlib.compress(zlib.decompress(pixels), 9)), kept[-1]])  # before the end


def with_label(png: bytes, label: str) -> bytes:
    """The same picture, and in its file a label of what it was drawn from."""
    first, *rest = _chunks(png)
    return _joined([first, (b"tEXt", LABEL + label.encode("ascii")), *rest])


def read_label(png: bytes) -> str | None:
    texts = (data for name, data in _chunks(png) if name == b"tEXt")
    return next((text[len(LABEL) :].decode("ascii") for text in texts if text.startswith(LABEL)), None)


def _chunks(png: bytes) -> list[tuple[bytes, bytes]]:
    """The parts of a PNG file: their names and what is in them."""
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
    """Vega numbers clip paths through all that a process draws; from 0 in each file, equal charts are equal files."""
    numbers: dict[str, int] = {}
    found = re.compile(r'(?<=id="clip)\d+(?=")|(?<=url\(#clip)\d+(?=\))')
    return found.sub(lambda match: str(numbers.setdefault(match[0], len(numbers))), svg)
