"""The verdicts on a study so far: judged anew when its runs change, but not all the time."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from recombine.errors import InputError
from recombine.serve.budget import BURST, SHARE, Allowance
from recombine.serve.busy import Load
from recombine.serve.library import Library
from recombine.serve.run_summary import SeenRun

if TYPE_CHECKING:
    from recombine.study.verdict import Verdict

LARGEST = 1 << 26  # bytes of metrics: judging needs them all at once, and many times that of memory
PACE = 10.0  # times as long as judging took, until a study is judged again; on a busy machine, see the allowance


class Judged(NamedTuple):
    """What was answered, about which state of the runs, and when it may be worked out anew."""

    stamps: list[Any]
    answer: dict[str, Any]
    until: float


class Verdicts:
    """`await verdicts.of(study)`: from memory, unless there is something new and it is time for it."""

    def __init__(self, library: Library, share: float = SHARE, load: Load | None = None):
        self.library = library
        self.kept: dict[str, Judged] = {}
        self.spent = 0.0
        self.allowance = Allowance(share / 3, BURST / 3, used=lambda: self.spent, load=load)  # of all studies together
        self.turn = asyncio.Lock()

    async def of(self, study: str) -> dict[str, Any]:
        """`again` tells in how many seconds there will be something newer than this."""
        if study not in self.library.studies():
            raise InputError("study", study, "no such directory of runs here")
        async with self.turn:
            runs = [seen for seen in self.library.runs.values() if seen.summary.study == study]
            stamps = [seen.stamp for seen in runs]
            known = self.kept.get(study)
            if known and known.stamps == stamps:
                return known.answer
            wait = max(self.allowance.owed(), known.until - time.monotonic() if known else 0.0)
            if wait > 0:
                return (known.answer if known else {"verdicts": []}) | {"again": round(max(1.0, wait), 1)}
            answer, seconds = await asyncio.to_thread(_timed, runs, self.library.root)
            self.spent += seconds
            self.kept[study] = Judged(stamps, answer, time.monotonic() + PACE * seconds)
            return answer


def _timed(runs: list[SeenRun], root: Path) -> tuple[dict[str, Any], float]:
    start = time.thread_time()
    return _judge(runs, root), time.thread_time() - start


def _shown(verdict: "Verdict") -> dict[str, Any]:
    from recombine.terminal.markdown import criterion, measured

    parts = [(part.state, f"{part.statistic}: {measured(part)}, holds if {criterion(part)}") for part in verdict.parts]
    shown = {name: getattr(verdict, name) for name in ("number", "claim", "state", "note")}
    return shown | {"parts": [{"state": state, "text": text} for state, text in parts]}


def _judge(runs: list[SeenRun], root: Path) -> dict[str, Any]:
    from recombine.run.reader import read_run
    from recombine.run.source import REFERENCES
    from recombine.study.collect import study_of
    from recombine.study.verdict import judge

    size = sum(seen.metrics[1] for seen in runs)
    if size > LARGEST:
        return {"error": f"{size >> 20} MB of metrics are too many to judge here: recombine report does"}
    read, left_out = [], []
    for seen in sorted(runs, key=lambda seen: seen.name):
        try:
            run = read_run(seen.source, scorecard=False)
            linked = (seen.path.parent / REFERENCES).is_symlink()  # elsewhere, where nothing is read
            read.append(replace(run, references=None) if linked else run)
        except Exception:  # anything can stand in a file; it must not keep the others from being judged
            left_out.append(seen.name)
    if not read:
        return {"error": "no run here can be read", "left_out": left_out}
    try:
        return {"verdicts": [_shown(verdict) for verdict in judge(study_of(read))], "left_out": left_out}
    except InputError as error:  # it names paths, of which the page's reader knows the part below the directory
        why = error.expected.replace(f"{root}/", "")
        return {"error": f"no verdicts: some of these runs {why}", "left_out": left_out}
    except Exception as error:  # rows of metrics that are JSON, and not what a run writes
        return {"error": f"{type(error).__name__}: {error}", "left_out": left_out}
