"""Judges the claims on a study that is still training: again when its runs change, but not too often."""

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from recombine.claims import CLAIMS
from recombine.errors import InputError
from recombine.record.codec import Record
from recombine.serve.budget import BURST, SHARE, Budget
from recombine.serve.busy import Busyness
from recombine.serve.library import Library
from recombine.serve.run_summary import SeenRun, Stamp

if TYPE_CHECKING:
    from recombine.study.collect import Study
    from recombine.study.verdict import Verdict

LARGEST = 1 << 26  # bytes of metrics: judging reads them all at once, which needs many times that in memory
PACE = 10.0  # pause this many times as long as judging took; on a busy machine, the budget adds to it


class ShownPart(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One measured comparison of a claim: in words, and its place on a curve."""

    state: str
    text: str
    first: bool = False
    """Whether it belongs to the reading that gives the verdict."""
    metric: str = ""
    """The curve that it judges; empty if there is none."""
    model: str = ""
    support: str = ""
    sign: str = ""
    line: float | None = None
    """The value that the curve has to reach at its end."""


class ShownVerdict(Record, frozen=True):
    """A verdict as the page shows it."""

    number: int
    claim: str
    state: str
    note: str
    parts: tuple[ShownPart, ...]
    lean: str = ""


class VerdictsAnswer(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The verdicts on a study, or the reason why there are none."""

    verdicts: tuple[ShownVerdict, ...]
    left_out: tuple[str, ...] = ()
    """The runs that cannot be read."""
    again: float | None = None
    """The seconds after which newer verdicts will be available."""
    error: str | None = None


class Judged(NamedTuple):
    """An answer, the state of the runs that it is about, and the time from which they may be judged again."""

    stamps: list[Stamp]
    answer: VerdictsAnswer
    until: float


class Verdicts:
    """Answers from memory, unless the study's runs have changed and it is time to judge them again."""

    def __init__(self, library: Library, share: float = SHARE, busyness: Busyness | None = None):
        self.library = library
        self.judged: dict[str, Judged] = {}
        self.seconds_used = 0.0
        used = lambda: self.seconds_used  # noqa: E731
        self.budget = Budget(share / 3, BURST / 3, time_used=used, busyness=busyness)  # for all studies together
        self.turn = asyncio.Lock()

    async def answer(self, study: str) -> VerdictsAnswer:
        if study not in self.library.studies():
            raise InputError("study", study, "there is no such directory of runs")
        async with self.turn:
            runs = [seen for seen in self.library.runs.values() if seen.summary.study == study]
            stamps = [seen.stamp for seen in runs]
            known = self.judged.get(study)
            if known and known.stamps == stamps:
                return known.answer
            wait = max(self.budget.seconds_to_wait(), known.until - time.monotonic() if known else 0.0)
            if wait > 0:
                answer = known.answer if known else VerdictsAnswer(verdicts=())
                return msgspec.structs.replace(answer, again=round(max(1.0, wait), 1))
            answer, seconds = await asyncio.to_thread(_judge_and_time, runs, self.library.root)
            self.seconds_used += seconds
            self.judged[study] = Judged(stamps, answer, time.monotonic() + PACE * seconds)
            return answer


def _judge_and_time(runs: list[SeenRun], root: Path) -> tuple[VerdictsAnswer, float]:
    start = time.thread_time()
    return _judge(runs, root), time.thread_time() - start


def _judge(runs: list[SeenRun], root: Path) -> VerdictsAnswer:
    from recombine.storage.reader import read_run
    from recombine.study.collect import study_of
    from recombine.study.verdict import judge

    readable = [seen for seen in runs if seen.config is not None]
    size = sum(seen.stamp.metrics[1] for seen in readable)
    if size > LARGEST:
        too_many = f"{size >> 20} MB of metrics are too much to judge here; use recombine report"
        return VerdictsAnswer(verdicts=(), error=too_many)
    read, left_out = [], [seen.name for seen in runs if seen.config is None]
    for seen in readable:
        try:
            read.append(read_run(seen.source, scorecard=False))
        except Exception:  # a file can contain anything; the other runs must still be judged
            left_out.append(seen.name)
    missing = tuple(sorted(left_out))
    if not read:
        return VerdictsAnswer(verdicts=(), left_out=missing, error="no run here can be read")
    try:
        study = study_of(read)
        verdicts = tuple(_shown(verdict, study) for verdict in judge(study))
        return VerdictsAnswer(verdicts=verdicts, left_out=missing)
    except InputError as error:  # show paths relative to the served directory
        why = f"no verdicts: some of these runs {error.expected.replace(f'{root}/', '')}"
    except Exception as error:  # metrics of the right types, but with numbers that no run would write
        why = f"{type(error).__name__}: {error}"
    return VerdictsAnswer(verdicts=(), left_out=missing, error=why)


def _shown(verdict: "Verdict", study: "Study") -> ShownVerdict:
    from recombine.study.statistics import judged_curve
    from recombine.terminal.markdown import criterion, measured

    (claim,) = (one for one in CLAIMS if one.number == verdict.number)
    readings = [("", verdict.parts), *((f"{words}: ", other.parts) for words, other in verdict.others)]
    parts = []
    for i, (words, judged) in enumerate(readings):
        # The readings of the claim come first, in their order; explicit inference has no curves of its own.
        known = claim.readings[i].statistics if i < len(claim.readings) else ()
        for j, part in enumerate(judged):
            curve = judged_curve(study, known[j]) if j < len(known) else None
            text = f"{words}{part.statistic}: {measured(part)}, holds if {criterion(part)}"
            given = {} if curve is None else curve._asdict()
            parts.append(ShownPart(state=part.state, text=text, first=i == 0, **given))
    return ShownVerdict(verdict.number, verdict.claim, verdict.state, verdict.note, tuple(parts), verdict.lean)
