"""The runs in this directory, read; and the cells that tables are made of."""

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from recombine import paper
from recombine.study.collect import RunRecord, Study, collect, read_run, run_directories
from recombine.study.series import lookup, reference_scores
from recombine.terminal.markdown import with_interval

HERE = Path(__file__).parent
T, H = "transformer", "hypertransformer"
MAIN = paper.DEFAULT_SUPPORT


@cache
def study(name: str) -> Study:
    return collect([HERE / name])


@cache
def sweep(name: str) -> tuple[RunRecord, ...]:
    """The finished runs of a sweep."""
    runs = (read_run(path) for path in run_directories(HERE / name, 1))
    return tuple(run for run in runs if run.finished)


def chosen(runs: Iterable[RunRecord], model: str, **fields: Any) -> list[RunRecord]:
    """The runs of a model whose configuration has these values: `task__episode_length=8`."""
    return [
        run
        for run in runs
        if run.model == model and all(lookup(run.config, *name.split("__")) == fields[name] for name in fields)
    ]


def r2(runs: Iterable[RunRecord], split: str) -> str:
    return with_interval([run.rows[-1][split]["r2"] for run in runs])


def reference(runs: Iterable[RunRecord], name: str, split: str) -> str:
    return with_interval(reference_scores(runs, name, [split])[0])


def mask_r2(runs: Sequence[RunRecord], mask: str) -> str:
    return with_interval([run.rows[-1]["ood"]["masks"][mask]["r2"] for run in runs])


APART = (f"{T}, held out", f"{H}, held out", "difference", "ridge", "latent decoded, held out")


def apart(one: Sequence[RunRecord], other: Sequence[RunRecord]) -> tuple[str, ...]:
    """The cells of APART: the two models on held-out masks. Their difference is paired by seed."""
    by_seed = {run.seed: run.rows[-1]["ood"]["r2"] for run in one}
    differences = [run.rows[-1]["ood"]["r2"] - by_seed[run.seed] for run in other if run.seed in by_seed]
    decoded = [run.rows[-1]["probe"]["latent"]["ood"] for run in other]
    ridge = reference(other, "ridge", "ood")
    return (r2(one, "ood"), r2(other, "ood"), with_interval(differences), ridge, with_interval(decoded))


def percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")
