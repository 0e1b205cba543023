import io

import pytest
from rich.console import Console

from recombine.terminal import progress
from recombine.terminal.progress import ProgressDisplay


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
