"""Writes the tables and figures of the stored runs into the docs: `python evidence/scripts/docs.py`.

With `--check` it only reports what would change. In a page, `<!-- evidence: NAME -->` and `<!-- end -->` mark the place
of a table; the text between them is replaced.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import code_tables
import findings
import studies
import sweeps
import variation
from figures import FIGURES
from limits import limits_table
from noise import noise_table
from readings import readings_table
from records import EVIDENCE, study, sweep
from screen import screen

from recombine.exam.benchmark import TASKS
from recombine.exam.result import read_result
from recombine.figure.save import read_label, save_figure, with_label
from recombine.study.wording import number, with_band
from recombine.terminal.markdown import escaped, table

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


def benchmark_table(paths: Sequence[Path]) -> str:
    """The results of the benchmark, best first. Those of all seeds come before those of one."""
    if not paths:
        return "No result is stored yet."
    results = sorted(
        (read_result(path)[0] for path in paths), key=lambda one: (one.size != "full", -fmean(one.score()))
    )
    supports = ("connected", "disconnected")
    rows = []
    for result in results:
        cells = [with_band(result.score()), *(number(fmean(result.values(task, split="novel"))) for task in TASKS)]
        cells += [number(fmean(found)) if (found := result.values("paper", one, "novel")) else "–" for one in supports]
        cells += [number(fmean(result.values(task))) for task in TASKS]
        cells += [f"{result.parameters:,}", f"{result.core_hours:.1f}", str(len(result.score()))]
        rows.append((escaped(result.model), *cells))
    head = ["model", "score", *(f"{task}, novel" for task in TASKS), *(f"{one}, novel" for one in supports)]
    head += [f"{task}, R²" for task in TASKS]
    return table([*head, "parameters", "core-hours", "seeds"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "tree": code_tables.tree,
    "benchmark": lambda: benchmark_table(sorted((EVIDENCE / "benchmark").glob("*.npz"))),
    "commands": code_tables.commands,
    "configuration": code_tables.configuration,
    "findings": findings.findings,
    "explicit-steps": findings.steps_table,
    "novel-paper": lambda: findings.novel_table("paper"),
    "novel-quick": lambda: findings.novel_table("quick"),
    "explicit-paper": lambda: findings.explicit_table("paper"),
    "explicit-quick": lambda: findings.explicit_table("quick"),
    "presets": studies.presets,
    "verdicts": lambda: studies.verdicts(["paper", "quick"]),
    "scores-paper": lambda: studies.scores("paper"),
    "scores-quick": lambda: studies.scores("quick"),
    "first-seed-quick": lambda: studies.first_seed("quick"),
    "masks-paper": lambda: studies.masks("paper"),
    "masks-quick": lambda: studies.masks("quick"),
    "active-modules-paper": lambda: studies.active_modules("paper"),
    "active-modules-quick": lambda: studies.active_modules("quick"),
    "modules-paper": lambda: studies.modules("paper"),
    "modules-quick": lambda: studies.modules("quick"),
    "panel-d-paper": lambda: studies.panel_d("paper"),
    "interventions-paper": lambda: studies.interventions("paper"),
    "interventions-quick": lambda: studies.interventions("quick"),
    "over-training-paper": lambda: studies.over_training(
        "paper", (2_500, 5_000, 10_000, 20_000, 40_000, 70_000, 100_000)
    ),
    "length": sweeps.length,
    "gap": sweeps.gap,
    "diversity": sweeps.diversity,
    "covariance": sweeps.covariance,
    "linearity": sweeps.linearity,
    "decoding": sweeps.decoding,
    "execution": sweeps.execution,
    "variation": variation.variation,
    "teachers": variation.teachers,
    "teachers-masks": variation.teachers_masks,
    "selection": sweeps.selection,
    "importance": sweeps.importance,
    "limits": limits_table,
    "noise": noise_table,
    "literal": lambda: screen(EVIDENCE / "literal.zip"),
    "readings": lambda: readings_table(study("quick"), sweep("readings"), sweep("variation"), sweep("gap")),
}


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
