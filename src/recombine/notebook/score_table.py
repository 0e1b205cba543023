"""Tables of scores as text and as HTML, for notebooks."""

from io import StringIO

from recombine.html_table import html_table
from recombine.study.summary import ScoreTable
from recombine.support.split import EVAL_SPLITS

WIDTH = 100


def scores_text(scores: ScoreTable) -> str:
    """The table that the commands print."""
    from rich.console import Console

    from recombine.terminal.tables import print_scores

    text = StringIO()
    print_scores(scores, Console(file=text, width=WIDTH, highlight=False))
    return text.getvalue()


def scores_html(scores: ScoreTable) -> str:
    """A row for each model and reference, a column for each split and for the probe."""
    everyone = {**scores.models, **scores.references}
    columns = [split for split in EVAL_SPLITS if any(row.r2.get(split) is not None for row in everyone.values())]
    others = [name for name in ("novel", "probe") if any(getattr(row, name) is not None for row in everyone.values())]
    rows = []
    for name, row in everyone.items():
        values = [row.r2.get(split) for split in columns] + [getattr(row, other) for other in others]
        rows.append([name, *("–" if value is None else f"{value:.3f}" for value in values)])
    return html_table(scores.title, ["R²", *columns, *others], rows)
