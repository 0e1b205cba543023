"""A chart as a file: PNG or SVG, equal charts as equal bytes, and no larger than need be."""

import re
import zlib
from io import StringIO
from pathlib import Path
from struct import pack, unpack

import altair as alt
import vl_convert

from recombine.files import replacing


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
    chunks, pixels, at = [], b"", 8
    while at < len(png):
        (size,) = unpack(">I", png[at : at + 4])
        name, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        if name == b"IDAT":
            pixels += data
        else:
            chunks.append((name, data))
        at += size + 12
    chunks.insert(-1, (b"IDAT", zlib.compress(zlib.decompress(pixels), 9)))  # before the end
    return png[:8] + b"".join(
        pack(">I", len(data)) + name + data + pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


def _renumber(svg: str) -> str:
    """Vega numbers clip paths through all that a process draws; from 0 in each file, equal charts are equal files."""
    numbers: dict[str, int] = {}
    found = re.compile(r'(?<=id="clip)\d+(?=")|(?<=url\(#clip)\d+(?=\))')
    return found.sub(lambda match: str(numbers.setdefault(match[0], len(numbers))), svg)
