"""`rc.runs` and `rc.draw`: several runs, their tidy table, their figures and the verdicts on the paper's claims."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recombine.errors import InputError, suggestion
from recombine.html_table import html_table
from recombine.notebook.frame import Library, reference_rows, run_rows, to_frame
from recombine.notebook.load import Run, demo_path
from recombine.run.machine import prepare
from recombine.storage.reader import read_run
from recombine.storage.source import require_runs
from recombine.study.collect import Study, study_of

if TYPE_CHECKING:
    import altair as alt

    from recombine.study.verdict import Verdict


class Runs(Sequence[Run]):
    """Runs, in the order of their paths."""

    def __init__(self, runs: Sequence[Run]):
        self._runs = tuple(runs)

    def __len__(self) -> int:
        return len(self._runs)

    def __getitem__(self, index: Any) -> Any:
        found = self._runs[index]
        return Runs(found) if isinstance(index, slice) else found

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def frame(self, by_mask: bool = False, references: bool = False, library: Library | None = None) -> Any:
        """A tidy table: run, model, support, seed, step, split, r2, mse, probe, novel. With `by_mask`, a row for each
        mask; with `references`, the references too, under their names."""
        rows = [run_rows(run.stored, by_mask) for run in self]
        if references:
            if by_mask:
                raise InputError("references", True, "they are not stored by mask; leave out one of the two")
            rows += [reference_rows(run.stored) for run in self]
        return to_frame(chain.from_iterable(rows), library)

    @cached_property
    def study(self) -> Study:
        """The runs as the study of a report. They must be comparable: same sizes, same steps."""
        return study_of([run.stored for run in self])

    def verdicts(self) -> "tuple[Verdict, ...]":
        """The verdict on each of the paper's claims."""
        from recombine.study.verdict import judge

        return judge(self.study)

    @property
    def figures(self) -> list[str]:
        """The names of the figures that these runs have data for."""
        from recombine.figure.compose import figures

        return list(figures(self.study))

    def draw(self, name: str = "results") -> "alt.ConcatChart":
        """One of the report's figures, by name."""
        return draw(self, name)

    def __repr__(self) -> str:
        models, supports = ({getattr(run.stored, name): None for run in self} for name in ("model", "support"))
        return f"Runs({len(self)} runs: {', '.join(models)}; on {', '.join(supports)})"

    def _repr_html_(self) -> str:
        rows = [
            (run.path.name, run.label, run.stored.support, run.stored.seed, run.step, run.stored.state) for run in self
        ]
        return html_table(repr(self), ("run", "model", "support", "seed", "step", "state"), rows)


def runs(*paths: str | Path) -> Runs:
    """Every run in directories and archives, or in the demo (`rc.runs("demo/quick")`)."""
    if not paths:
        raise InputError("paths", "", "name at least one directory of runs, or demo")
    prepare()
    found: dict[Path, Run] = {}
    for path in paths:
        for source in require_runs(demo_path(path), "paths"):
            found.setdefault(source.path.resolve(), Run(read_run(source)))
    return Runs(list(found.values()))


def draw(what: "Runs | Run | str | Path", name: str = "results") -> "alt.ConcatChart":
    """One of the report's figures: an Altair chart, which a notebook shows and `save("figure.png")` stores."""
    from recombine.figure.compose import draw_figure, figures
    from recombine.figure.contents import FIGURES

    collection = what if isinstance(what, Runs) else Runs([what]) if isinstance(what, Run) else runs(what)
    if name not in FIGURES:
        raise InputError("name", name, f"one of {', '.join(FIGURES)}{suggestion(name, list(FIGURES))}")
    if name not in figures(collection.study):
        raise InputError("name", name, f"these runs have no data for it; they have {', '.join(collection.figures)}")
    return draw_figure(collection.study, name)
