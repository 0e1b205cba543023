"""Puts the tables and figures of these runs into the docs: `python evidence/docs.py`; `--check` only looks.

A page says where a table goes with `<!-- evidence: NAME -->` and `<!-- end -->`; what stands between is replaced.
"""

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from figures import FIGURES
from tables import TABLES

from recombine.report.save import save_figure

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
PLACE = re.compile(r"(<!-- evidence: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str) -> str:
    return PLACE.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}", text)


def drawn(name: str) -> bytes:
    with TemporaryDirectory() as directory:
        path = Path(directory) / name
        save_figure(FIGURES[name](), path)
        return path.read_bytes()


def main(check: bool) -> int:
    stale = []
    for path in (*PAGES, *(ROOT / "docs/images" / name for name in FIGURES)):
        before = path.read_bytes() if path.exists() else b""
        after = filled(before.decode()).encode() if path in PAGES else drawn(path.name)
        if after != before:
            stale.append(path)
            if not check:
                path.write_bytes(after)
    for path in stale:
        words = "is not what the runs say" if check else "written"
        sys.stdout.write(f"{path.relative_to(ROOT).as_posix()} {words}\n")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
