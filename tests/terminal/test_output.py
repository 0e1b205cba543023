"""What is printed while work goes on: lines, progress, rates and times."""

import io
import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from recombine import terminal
from recombine.jobs.estimate import Cost, JobCost
from recombine.jobs.protocol import Job, JobEvent, News, NewsKind
from recombine.record.score import MetricsRow, SplitScore
from recombine.terminal import jobs, progress
from recombine.terminal.jobs import JobsDisplay
from recombine.terminal.output import print_json
from recombine.terminal.progress import ProgressDisplay, Rate, duration

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
WORDS = st.sampled_from(["[1,   2]", "x [ 3,4 ] y", "[\\n5\\n]", '"', "{}"])
VALUES = st.recursive(
    LEAVES | WORDS, lambda inner: st.lists(inner) | st.dictionaries(st.text() | WORDS, inner), max_leaves=20
)


@given(VALUES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_is_the_value_whatever_is_in_its_strings(capsys: pytest.CaptureFixture[str], value: Any) -> None:
    print_json(value)
    assert json.loads(capsys.readouterr().out) == value


def test_whole_numbers_stand_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"masks": [[1, 1, 0], [0, 1, 1]], "empty": [], "words": ["[1,   2]", "é"], "none": {}, "r2": [0.5]})
    assert capsys.readouterr().out.splitlines() == [
        "{",
        '  "masks": [',
        "    [1, 1, 0],",
        "    [0, 1, 1]",
        "  ],",
        '  "empty": [],',
        '  "words": [',
        '    "[1,   2]",',
        '    "é"',
        "  ],",
        '  "none": {},',
        '  "r2": [',
        "    0.5",
        "  ]",
        "}",
    ]


def test_every_console_is_for_results_or_on_stderr() -> None:
    """A plain `Console()` prints where a user's model prints, and its table would be lost among that."""
    for path in Path(terminal.__file__).parent.glob("*.py"):
        for arguments in re.findall(r"\bConsole\((.*?)\)", path.read_text(encoding="utf-8")):
            assert "stderr=True" in arguments or path.name == "output.py", path


def test_plain_lines_elsewhere(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 6))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    with ProgressDisplay("transformer", 30) as display:
        for step in (10, 20, 30):
            display.update(step, "loss 0.5")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "transformer: 0/30 steps, compiling"
    # The first report holds the compiling: the rate after it is of the steps since, 10 every 6 seconds.
    assert lines[2] == "transformer: 20/30 steps · loss 0.5 · 1.7 steps/s · ETA 6 s"
    assert lines[3].startswith("transformer: 30/30 steps")
    assert not any("\x1b" in line for line in lines)


def test_a_bar_on_a_terminal() -> None:
    display = ProgressDisplay("transformer", 30)
    display.console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with display:
        display.update(10, "loss 0.5")
        display.update(20, "loss 0.4")
    text = display.console.file.getvalue()  # pyright: ignore
    assert "20/30" in text
    assert "loss 0.4" in text
    assert "ETA" in text


def row(step: int, ood: float) -> MetricsRow:
    scores = {split: SplitScore(r2, 1 - r2, None, 0.1) for split, r2 in (("in_dist", 0.75), ("ood", ood))}
    control = SplitScore(0.0, 1.0, None, 0.1)
    return MetricsRow(step=step, loss=None, control=control, control_modules=control, probe=None, **scores)


def news(name: str, kind: NewsKind, **more) -> JobEvent:
    return JobEvent(Job(name=name, kind="train", parts=()), News(kind=kind, **more))


def test_compiling_does_not_count() -> None:
    rate = Rate(first=100)
    for now in range(20):
        rate.update(100, float(now))
    rate.update(101, 20.0)
    assert rate.per_second is None
    rate.update(201, 30.0)
    assert rate.per_second == pytest.approx(10.0)


def test_only_the_last_minute_counts() -> None:
    rate = Rate()
    for now in range(1, 101):
        rate.update(now, float(now))  # one a second
    for now in range(101, 181):
        rate.update(100 + 5 * (now - 100), float(now))  # five a second
    assert rate.per_second == pytest.approx(5.0)


def test_durations() -> None:
    assert [duration(s) for s in (0.4, 119, 120, 7199, 7200)] == ["0 s", "119 s", "2 min", "120 min", "2.0 h"]


def test_many_jobs_as_plain_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(jobs.time, "monotonic", lambda: now[0])
    with JobsDisplay({"references": None, "a": 1000, "b": 1000, "c": 1000}, workers=2) as display:
        display.update(news("references", "started"))
        display.update(news("references", "done"))
        for name in ("a", "b"):
            display.update(news(name, "started"))
            display.update(news(name, "progress", step=0))
        for now[0], step in ((30.0, 1), (31.0, 11), (41.0, 111)):
            for name in ("a", "b"):
                display.update(news(name, "progress", step=step, loss=0.25, row=row(0, ood=0.5)))
    lines = capsys.readouterr().err.splitlines()
    assert "references: done" in lines
    assert "a: 111/1,000 · loss 0.2500 · R² in_dist 0.750 · R² ood 0.500 · 10.0 steps/s · ETA 89 s" in lines
    # b's last report has not come yet: 889 + 989 + 1,000 steps are left, at 20 a second
    assert lines[-1] == "1 of 4 jobs (runs: 3, references: 1) done, 2 running, 1 waiting · 20 steps/s · ETA 2 min"


def test_the_remaining_time_counts_what_is_not_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling, references and scorecards are expected from the start; this machine is half as fast."""
    costs = {"references": JobCost(Cost(10.0, 10.0))} | {
        name: JobCost(Cost(20.0, 0.0), Cost(0.0, 100.0), Cost(0.0, 30.0)) for name in "ab"
    }
    display = JobsDisplay({"references": None, "a": 100, "b": 100}, 1, costs)
    now = [0.0]
    monkeypatch.setattr(jobs.time, "monotonic", lambda: now[0])
    display.update(news("references", "started"))
    assert "ETA 5 min" in display._overall(0.0), "20 + 2 · 150 s"
    now[0] = 40.0
    display.update(news("references", "done"))
    assert "ETA 10 min" in display._overall(40.0), "everything takes twice its cost"
    display.update(news("a", "started"))
    for now[0], step in ((50.0, 0), (60.0, 1), (80.0, 41)):
        display.update(news("a", "progress", step=step, loss=0.1))
    assert display._seconds_left("a", 80.0) == pytest.approx(59 / 2 + 60), "at two steps a second, then the scorecard"
    assert display._seconds_left("b", 80.0) == pytest.approx(300)


def test_failures_and_the_best_so_far(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "SECONDS_BETWEEN_LINES", 0.0)
    with JobsDisplay(dict.fromkeys("abcd", 10), workers=1) as display:
        for name, r2 in (("a", 0.5), ("b", 0.7), ("c", 0.6)):
            display.update(news(name, "started"))
            display.update(news(name, "progress", step=10, loss=0.1, row=row(10, ood=r2)))
            display.update(news(name, "done"))
        display.update(news("d", "started"))
        display.update(news("d", "failed", error="no space left"))
    assert "d: failed: no space left" in capsys.readouterr().err
    assert display._overall(0.0) == "3 of 4 jobs done, 0 running, 0 waiting · 1 failed · best R² ood 0.700 (b)"


def test_on_a_narrow_terminal_nothing_is_cut() -> None:
    """Tested with names that differ only at the end, and contain brackets."""
    names = [f"hypertransformer-embed_dim=64,num_layers=2,latent_dim=12[bold]-seed{i}" for i in range(2)]
    display = JobsDisplay(dict.fromkeys(names, 10), workers=2)
    display.console = Console(file=StringIO(), force_terminal=True, width=60, height=40, color_system=None)
    with display:
        for name in names:
            display.update(news(name, "started"))
            display.update(news(name, "progress", step=5, loss=0.125, row=row(5, ood=0.5)))
        assert display.bar
        display.bar.refresh()
    shown = "".join(display.console.file.getvalue().split())  # a name is folded, not cut
    assert all(name in shown for name in names)
    assert shown.count("loss0.1250·R²in_dist0.750") >= 2
    assert "…" not in shown


@pytest.mark.parametrize("width", [40, 80])
def test_a_narrow_terminal_shows_the_whole_remaining_time(width: int) -> None:
    display, text = ProgressDisplay("hypertransformer", 6000), StringIO()
    display.console = Console(file=text, width=width, force_terminal=True, color_system=None)
    with display:
        for step in (1, 300):
            display.update(step, "loss 0.3701 · R² in_dist -2.635 · R² ood -2.639")
    *_, last = re.split(r"[\r\n]", text.getvalue().rstrip("\r\n\x1b[?25h "))
    assert re.search(r"hypertransformer .*300/6000 · ETA (-:--:--|\d:\d\d:\d\d)", last), last
