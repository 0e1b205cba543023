"""The tables of the docs, by name, made only from the runs in evidence/."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

import code_tables
import findings
import studies
import sweeps
import variation
from noise import noise_table
from readings import readings_table
from records import EVIDENCE, study, sweep
from screen import screen

from recombine.exam.benchmark import TASKS, read_result
from recombine.study.wording import number, with_band
from recombine.terminal.markdown import escaped, table


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
        cells = [with_band(result.score()), *(with_band(result.values(task)) for task in TASKS)]
        cells.append(number(fmean(result.values("even", split="novel"))))
        cells += [number(fmean(found)) if (found := result.values("paper", one)) else "–" for one in supports]
        cells += [f"{result.parameters:,}", f"{result.core_hours:.1f}", str(len(result.score()))]
        rows.append((escaped(result.model), *cells))
    head = ["model", "score", *TASKS, "even, novel part", *(f"paper, {one}" for one in supports)]
    return table([*head, "parameters", "core-hours", "seeds"], rows)


TABLES: dict[str, Callable[[], str]] = {
    "tree": code_tables.tree,
    "benchmark": lambda: benchmark_table(sorted((EVIDENCE / "benchmark").glob("*.npz"))),
    "commands": code_tables.commands,
    "configuration": code_tables.configuration,
    "findings": findings.findings,
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
    "noise": noise_table,
    "literal": lambda: screen(EVIDENCE / "literal.zip"),
    "readings": lambda: readings_table(study("quick"), sweep("readings"), sweep("variation"), sweep("gap")),
}
