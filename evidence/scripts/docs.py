"""Writes the tables and figures of the stored runs into the docs: `python evidence/scripts/docs.py`.

With `--check` it only reports what would change. In a page, `<!-- evidence: NAME -->` and `<!-- end -->` mark the place
of a table; the text between them is replaced.
"""

import json
import re
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from figures import FIGURES
from tables import TABLES

from recombine.figure.save import read_label, save_figure, with_label

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
PLACE = re.compile(r"(<!-- evidence: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str) -> str:
    return PLACE.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}", text)


def digest(chart: Any) -> str:
    """A digest of a chart's specification: numbers, words, colours, sizes. It does not cover pixels, which depend on
    the fonts of a machine, nor the last digits, which may depend on its processor."""

    def rounded(value: Any) -> Any:
        match value:
            case float():
                return float(f"{value:.6g}")
            case dict():
                return {key: rounded(one) for key, one in value.items()}
            case list():
                return [rounded(one) for one in value]
        return value

    text = json.dumps(rounded(chart.to_dict()), sort_keys=True)
    # Altair names these by a counter in the process, or by a hash of every digit in them.
    named = re.sub(r'"(view|param|layer)_[0-9a-f_]+', r'"\1', text)
    return sha256(named.encode()).hexdigest()


def drawn(chart: Any, label: str) -> bytes:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "figure.png"
        save_figure(chart, path)
        return with_label(path.read_bytes(), label)


def stale_pages(check: bool) -> Iterator[Path]:
    for path in PAGES:
        before = path.read_bytes()
        after = filled(before.decode()).encode()
        if after != before:
            yield path
            if not check:
                path.write_bytes(after)


def stale_figures(check: bool) -> Iterator[Path]:
    for name, draw in FIGURES.items():
        path, chart = ROOT / "docs/images" / name, draw()
        label = digest(chart)
        if not path.exists() or read_label(path.read_bytes()) != label:
            yield path
            if not check:
                path.write_bytes(drawn(chart, label))


def main(check: bool) -> int:
    stale = [*stale_pages(check), *stale_figures(check)]
    for path in stale:
        words = "is not what the runs say" if check else "written"
        sys.stdout.write(f"{path.relative_to(ROOT).as_posix()} {words}\n")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
