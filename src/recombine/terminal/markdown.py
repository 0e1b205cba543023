"""A study's scores and verdicts as Markdown, for a README, an issue or a paper's draft."""

from collections.abc import Iterable, Iterator, Sequence

from recombine.study.collect import Study
from recombine.study.series import (
    model_scores,
    models,
    novel_scores,
    reference_novel,
    reference_scores,
    supports,
)
from recombine.study.summary import steps_of, without_novel
from recombine.study.verdict import Part, Verdict
from recombine.study.wording import (
    COMPARISON_SIGNS,
    REFERENCE_WORDS,
    SPLIT_WORDS,
    excluded,
    number,
    short,
    with_band,
)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table. Cells are already Markdown; the first `left` columns are left-aligned, the others right-aligned."""
    align = ["---"] * left + ["--:"] * (len(head) - left)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, align, *rows))


def escaped(name: str) -> str:
    """A name from outside, escaped so that it cannot break the table."""
    letters = "".join(letter if letter.isprintable() else "�" for letter in name)
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>|#&" else letter for letter in letters)


def study_markdown(study: Study, verdicts: Sequence[Verdict]) -> str:
    """All tables of a study: scores and verdicts."""
    parts = [f"### Trained on {escaped(support)}\n\n{scores}" for support, scores in score_tables(study)]
    return "\n\n".join([*parts, f"### Verdicts\n\n{verdict_table(verdicts)}"])


def score_tables(study: Study) -> Iterator[tuple[str, str]]:
    """For each support, the R² of models and references at the last snapshot, averaged over seeds."""
    for support in supports(study):
        runs = [run for run in study.runs if run.support == support and run.rows]
        rows = [
            (
                f"**{escaped(model)}**",
                *_cells((*model_scores(runs, model, SPLIT_WORDS), novel_scores(runs, model))),
                steps_of(runs, model),
            )
            for model in models(study)
        ]
        rows += [
            (words, *_cells((*reference_scores(runs, name, SPLIT_WORDS), reference_novel(runs, name))), "")
            for name, words in REFERENCE_WORDS.items()
        ]
        known = [row for row in rows if set(row[1:-1]) != {"–"}]
        if known:
            yield support, table(*without_novel(("R²", *SPLIT_WORDS.values(), "novel part", "steps × seeds"), known))


def _cells(columns: Iterable[Sequence[float]]) -> list[str]:
    return [with_band(column) for column in columns]


def verdict_table(verdicts: Sequence[Verdict]) -> str:
    """A row for each statistic; the first row of a claim also has the claim and its verdict.

    A claim of which nothing was measured has one row.
    """
    rows = []
    for verdict in verdicts:
        readings = [(f"**{verdict.state}** ({verdict.remark})", verdict.parts)]
        readings += [(f"{other.state} ({words})", other.parts) for words, other in verdict.others]
        claim = (str(verdict.number), verdict.claim)
        if not verdict.measured:
            rows.append((*claim, readings[0][0], "", "–", ""))
            continue
        for state, parts in readings:
            for part in parts:
                rows.append((*claim, state, part.statistic, measured(part), criterion(part)))
                claim, state = ("", ""), ""
    return table(("", "claim", "verdict", "statistic", "measured", "criterion"), rows, left=4)


def measured(part: Part) -> str:
    """The effect with its interval over seeds."""
    between = "" if part.low is None else f" [{number(part.low)}, {number(part.high)}]"
    beyond = excluded(part.comparison, part.bound, part.state)
    return "–" if part.mean is None else f"{number(part.mean)}{between}" + (f"; {beyond}" if beyond else "")


def criterion(part: Part) -> str:
    return f"{COMPARISON_SIGNS[part.comparison]}{short(part.threshold)}"
