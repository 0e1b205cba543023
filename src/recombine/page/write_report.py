"""Writes the report of a study: figures, verdicts and the page, in one directory."""

import json
from collections.abc import Sequence
from pathlib import Path

from recombine.figure.compose import write_figures
from recombine.files import make_output_directory, replace_file
from recombine.page.report import write_page
from recombine.record.codec import plain
from recombine.study.collect import Study, collect
from recombine.study.verdict import Verdict, judge

PAGE, VERDICTS = "index.html", "verdicts.json"


def write_report(runs: Sequence[Path], out: Path, figures: bool = True) -> tuple[Study, tuple[Verdict, ...], Path]:
    """Write the report from run directories alone. Returns the study, the verdicts and the path of the page."""
    study = collect(runs)
    verdicts = judge(study)
    make_output_directory("out", out)
    replace_file(out / VERDICTS, _json([plain(verdict) for verdict in verdicts]))
    write_page(study, verdicts, out / PAGE)
    if figures:
        write_figures(study, out)
    return study, verdicts, out / PAGE


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()
