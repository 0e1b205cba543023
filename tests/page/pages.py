"""Pages of synthetic studies, for the tests to look at."""

from pathlib import Path

from recombine.page.report import write_page
from recombine.study.collect import Study
from recombine.study.verdict import Part, Verdict
from tests.study.studies import HOSTILE

VERDICTS = (
    Verdict(
        2,
        "the transformer's R² drops",
        "A",
        "relative R²",
        (Part("the drop", ">=", 0.1, (0.2, 0.22, 0.24), 0.22, 0.17, 0.27, 0.25, True, "holds"),),
        "holds",
        (),
        "3 seeds, 5,000 steps",
    ),
    Verdict(
        6,
        f"a claim {HOSTILE}",
        "D",
        "relative R²",
        (Part("no runs", "<=", 0.5, (), None, None, None, None, None, "not enough data"),),
        "not enough data",
        (),
        "0 seeds",
    ),
)


def page(study: Study, path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_page(study, VERDICTS, path)
    return path.read_text(encoding="utf-8")
