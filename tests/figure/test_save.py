"""Pictures as files."""

import zlib
from io import BytesIO
from pathlib import Path
from struct import pack, unpack

import altair as alt

from recombine.figure.save import compressed, read_label, save_figure, with_label


def chunks(png: bytes) -> list[tuple[bytes, bytes]]:
    """The chunks of a PNG file; checks their checksums."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    found, at = [], 8
    while at < len(png):
        (size,) = unpack(">I", png[at : at + 4])
        body = png[at + 4 : at + 8 + size]
        assert unpack(">I", png[at + 8 + size : at + 12 + size]) == (zlib.crc32(body),)
        found.append((body[:4], body[4:]))
        at += 12 + size
    return found


def make_png(*named: tuple[bytes, bytes]) -> bytes:
    parts = [pack(">I", len(data)) + name + data + pack(">I", zlib.crc32(name + data)) for name, data in named]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def test_the_same_picture_in_fewer_bytes() -> None:
    pixels = bytes(range(256)) * 400
    data = zlib.compress(pixels, 0)
    header = (b"IHDR", b"a picture's size and kind")
    png = make_png(header, (b"IDAT", data[:1000]), (b"IDAT", data[1000:]), (b"IEND", b""))
    small = compressed(png)
    assert [name for name, _ in chunks(small)] == [b"IHDR", b"IDAT", b"IEND"]
    assert chunks(small)[0] == header
    assert zlib.decompress(chunks(small)[1][1]) == pixels
    assert len(small) < len(png) / 2


def test_a_chart_is_saved_small(tmp_path: Path) -> None:
    chart = alt.Chart(alt.Data(values=[{"a": 1, "b": 2}, {"a": 3, "b": 4}])).mark_line().encode(x="a:Q", y="b:Q")
    save_figure(chart, tmp_path / "a.png", tmp_path / "a.svg")
    png = (tmp_path / "a.png").read_bytes()
    drawn = BytesIO()
    chart.save(drawn, format="png", scale_factor=2)
    assert png == compressed(drawn.getvalue()), "though it is drawn once for both files"
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    assert len(compressed(png)) == len(png), "it was compressed already"
    assert chunks(png)[-1] == (b"IEND", b"")


def test_a_label_in_a_picture(tmp_path: Path) -> None:
    save_figure(alt.Chart(alt.Data(values=[{"a": 1}])).mark_bar().encode(x="a:Q"), tmp_path / "a.png")
    png = (tmp_path / "a.png").read_bytes()
    labelled = with_label(png, "of these numbers")
    assert (read_label(png), read_label(labelled)) == (None, "of these numbers")
    assert compressed(labelled) == labelled, "still a picture, which can be read and written again"
    assert png[33:] == labelled[-len(png) + 33 :], "all behind the header, of 33 bytes, as it was"
