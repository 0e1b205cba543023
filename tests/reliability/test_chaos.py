"""Chaos: whatever users and machines do to a run, every number shown is right, or is refused in one line.

Random sequences of training, resuming, kills, crashes, full disks, edits, flipped bits, deleted files, examinations,
reports, exports, readings by the server, and two commands at once. The truth is the run that was left alone. hypothesis
shrinks a sequence that fails.
"""

import asyncio
import hashlib
import json
import shutil
import signal
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from recombine.errors import InputError
from recombine.record.codec import plain
from recombine.run.training import RunOptions, execute_run
from recombine.serve.app import make_app
from recombine.storage.thinned_metrics import curve_point
from recombine.study.collect import collect
from tests.reliability.chaos_truth import (
    Done,
    check_examined,
    check_reported,
    check_rows,
    check_trained,
    command,
    report,
    train_arguments,
    true_eval,
    true_rows,
    truth_directory,
    was_refused,
)
from tests.reliability.damage import EDITS, edit_file
from tests.reliability.faults import FAULTS, Crash, FailingDisk, disk
from tests.reliability.processes import run_processes
from tests.reliability.small_run import NUM_STEPS, finish, result, small_config

BESIDE = ("config.toml", "metrics.jsonl", "status.json", "env.json", "timing.jsonl", "scorecard.json")
INSIDE = ("state.safetensors", "manifest.json", "metrics.jsonl", "config.toml")
SEQUENCES_OF_A_SEED = 25
SEEDS = 20  # in the long form

steps = st.integers(0, NUM_STEPS)
places = st.floats(0, 1, exclude_max=True)
edits = st.tuples(st.sampled_from(EDITS), places)
faults = st.sampled_from((*FAULTS, "full"))


class Chaos(RuleBasedStateMachine):
    """One run, and what happens to it."""

    attacked: Callable[..., None]

    @initialize(processes=st.integers(0, 1))
    def begin(self, processes: int) -> None:
        self.attacked("chaos: a sequence")
        self.processes = processes  # how many times others may be started: that takes seconds
        self.root = Path(tempfile.mkdtemp(prefix="recombine-chaos-"))
        self.run = self.root / "runs" / "run"
        self.outputs = 0
        self.started = self.touched = False
        self.written: dict[str, str] = {}
        """The digest of each checkpoint, as the run wrote it."""
        self.seen: dict[str, tuple[int, int]] = {}

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root, ignore_errors=True)

    # What users and machines do

    @rule(until=steps)
    def train(self, until: int) -> None:
        self.attacked("chaos: a training")
        self._trained(command(*train_arguments(self.run, until), "--json"))

    @rule(until=steps, fault=faults, at=st.integers(0, 150))
    def train_on_a_bad_day(self, until: int, fault: str, at: int) -> None:
        self.attacked("chaos: a training on a failing disk")
        done = on_a_bad_day(fault, at, lambda: command(*train_arguments(self.run, until), "--json"))
        self._trained(done, excused=True)

    @precondition(lambda self: self.processes > 0)
    @rule(until=steps, at=st.integers(0, 150))
    def kill(self, until: int, at: int) -> None:
        """With SIGKILL, in the middle of the work."""
        self.attacked("chaos: a killed process")
        self.processes -= 1
        (code,) = run_processes([train_arguments(self.run, until)], kill_at=at)
        self._left(code in (0, -signal.SIGKILL))

    @precondition(lambda self: self.processes > 0)
    @rule(until=steps)
    def two_at_once(self, until: int) -> None:
        """Two processes train the run, and a third examines it."""
        self.attacked("chaos: three commands at once")
        self.processes -= 1
        training = train_arguments(self.run, until)
        *codes, examining = run_processes([training, training, ["eval", self.run]])
        assert {*codes, examining} <= {0, 1, 2}, codes
        self._left(0 in codes)

    @rule(until=steps, reports=st.integers(1, 6), to_the_end=st.booleans())
    def read_while_it_trains(self, until: int, reports: int, to_the_end: bool) -> None:
        self.attacked("chaos: readings during a training")
        self.started = True
        try:
            with closing(execute_run(small_config(), self.run, RunOptions(save_every=0.0, stop_at=until))) as training:
                for _ in islice(training, reports):
                    pass
                going = (self.run / "status.json").read_text().find("running") >= 0
                assert not going or was_refused(command(*train_arguments(self.run))), "two writers"
                self.examine()
                self.report()
                self.serve()
                self.export(True, True, None)
                for _ in training if to_the_end else ():
                    pass
        except InputError as refused:
            self._left(False)
            assert "\n" not in str(refused)
        self._left(True)

    def _trained(self, done: Done | None, excused: bool = False) -> None:
        if done is not None:
            check_trained(done)
        self._left(excused or (done is not None and done[0] == 0))

    def _left(self, well: bool) -> None:
        """A command has trained the run, or was refused, which it is only where no checkpoint is left."""
        refused_with = [] if well else self._whole()
        assert well or (self.touched and not refused_with), f"a run that has {refused_with} was refused"
        self.started = True
        for path in (self.run / "checkpoints").glob("step-*"):
            self.written.setdefault(path.name, digest(path))

    @precondition(lambda self: self.run.exists())
    @rule(name=st.sampled_from(BESIDE), edit=edits)
    def damage_a_file(self, name: str, edit: tuple[str, float]) -> None:
        self.attacked("chaos: a damaged file of a run")
        edit_file(self.run / name, *edit)
        # Before the first checkpoint there is no copy of the configuration, and no step to lose: the run is refused.
        self.touched |= name == "config.toml" and not self._whole()

    @precondition(lambda self: (self.run.parent / "references").exists())
    @rule(edit=edits)
    def damage_the_references(self, edit: tuple[str, float]) -> None:
        self.attacked("chaos: damaged references")
        for path in sorted((self.run.parent / "references").glob("*.json")):
            edit_file(path, *edit)

    @precondition(lambda self: self.run.exists())
    @rule(which=st.integers(0, 1), name=st.sampled_from(INSIDE), edit=edits)
    def damage_a_checkpoint(self, which: int, name: str, edit: tuple[str, float]) -> None:
        self.attacked("chaos: a damaged checkpoint")
        for path in sorted((self.run / "checkpoints").glob("step-*"), reverse=True)[which : which + 1]:
            self.touched |= edit_file(path / name, *edit)

    # What is shown

    @rule()
    def examine(self) -> None:
        self.attacked("chaos: `eval`")
        check_examined(command("eval", self.run, "--json"))

    @rule(fault=faults, at=st.integers(0, 30), what=st.sampled_from(["eval", "export", "report"]))
    def show_on_a_bad_day(self, fault: str, at: int, what: str) -> None:
        self.attacked("chaos: a result read from a failing disk")
        out = self._output("")
        asked: dict[str, tuple[Callable[[], Done], Callable[[Done], Any]]] = {
            "eval": (lambda: command("eval", self.run, "--json"), check_examined),
            "export": (lambda: command("export", self.run, "--weights", "--out", out), was_refused),
            "report": (lambda: report(self.run.parent, out), check_reported),
        }
        show, check = asked[what]
        done = on_a_bad_day(fault, at, show)
        if done is not None:
            check(done)
        if what == "export" and out.exists():
            self._check_export(out)

    @rule(weights=st.booleans(), archive=st.booleans(), edit=st.none() | st.tuples(st.integers(0, 9), edits))
    def export(self, weights: bool, archive: bool, edit: tuple[int, tuple[str, float]] | None) -> None:
        self.attacked("chaos: `export`")
        out = self._output(".zip" if archive else "")
        if was_refused(command("export", self.run, *(["--weights"] if weights else []), "--out", out)):
            return
        if edit is not None:
            files = sorted(path for path in (out, *out.rglob("*")) if path.is_file())
            edit_file(files[edit[0] % len(files)], *edit[1])
        self._check_export(out)
        if weights and out.exists():
            check_examined(command("eval", out / "run", "--json"))

    def _check_export(self, out: Path) -> None:
        try:
            runs = collect([out]).runs
        except InputError as refused:
            assert "\n" not in str(refused)
        else:
            for run in runs:
                check_rows(run.rows)

    @rule()
    def report(self) -> None:
        self.attacked("chaos: `report`")
        check_reported(report(self.run.parent, self._output("")))
        try:
            (run,) = collect([self.run.parent]).runs
        except InputError as refused:
            assert "\n" not in str(refused)
            return
        check_rows(run.rows)
        for name, scores in (run.references or {}).items():
            assert plain(scores) == true_eval()["references"][name]
        if run.scorecard is not None and run.scorecard.step == NUM_STEPS:
            assert plain(run.scorecard)["active_modules"] == true_eval()["active_modules"]

    @rule()
    def serve(self) -> None:
        self.attacked("chaos: answers of the server")
        runs, curves = asyncio.run(ask(self.run.parent, "/api/runs", "/api/curves?run=run&metric=ood"))
        shown = {run["name"]: run for run in runs["runs"]}
        assert "run" in shown or not self._whole(), "a run is not shown"
        for run in shown.values():
            if run.get("measured") is not None:
                point = curve_point(true_rows()[run["measured"]])
                assert [run.get(name) for name in ("in_dist", "ood", "loss")] == [point.in_dist, point.ood, point.loss]
        for curve in curves.values():
            for step, value in zip(curve["steps"], curve["values"]["ood"], strict=True):
                assert value == curve_point(true_rows()[step]).ood

    def _output(self, suffix: str) -> Path:
        self.outputs += 1
        return self.root / f"output{self.outputs}{suffix}"

    # What must hold

    def _whole(self) -> list[str]:
        """The checkpoints that are as the run wrote them."""
        found = sorted((self.run / "checkpoints").glob("step-*"))
        return [path.name for path in found if self.written.get(path.name) == digest(path)]

    @invariant()
    def nothing_is_lost(self) -> None:
        """A run with one whole checkpoint resumes, whatever happened beside it, and ends as it would have. So does one
        whose checkpoints nobody touched, if it has any."""
        if not getattr(self, "started", False) or not self.run.exists() or (self.touched and not self._whole()):
            return
        files = {str(path): path.stat() for path in self.run.rglob("*") if path.is_file()}
        seen = {path: (found.st_mtime_ns, found.st_ino) for path, found in files.items()}
        if seen == self.seen:  # and was checked
            return
        copy = self.root / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.run, copy)
        finish(copy)
        assert result(copy) == result(truth_directory() / "run")
        self.seen = seen


def on_a_bad_day(fault: str, at: int, show: Callable[[], Done]) -> Done | None:
    """A command while the disk fails; None if the process ended with it."""
    with disk(FailingDisk(at, fault)), suppress(Crash):
        return show()
    return None


def digest(directory: Path) -> str:
    files = sorted(path for path in directory.iterdir() if path.is_file())
    return hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in files)).hexdigest()


async def ask(root: Path, *paths: str) -> list[Any]:
    """What the server's routes answer, without a network."""
    app, answers = make_app(root, share=1.0), []
    for path in paths:
        name, _, query = path.partition("?")
        said: list[dict] = []

        async def receive(said: list[dict] = said) -> dict:
            if said:
                await asyncio.Event().wait()
            return {"type": "http.request"}

        async def send(message: dict, said: list[dict] = said) -> None:
            said.append(message)

        scope = {"type": "http", "method": "GET", "path": name, "query_string": query.encode(), "http_version": "1.1"}
        await app(scope | {"headers": [(b"host", b"localhost:80")]}, receive, send)
        assert said[0]["status"] == 200, said
        answers.append(json.loads(b"".join(message.get("body", b"") for message in said)))
    return answers


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("number", range(SEEDS if metafunc.config.getoption("--torture") else 1))


def test_every_number_shown_is_right_or_refused(number: int, torture: bool, attacked: Callable[..., None]) -> None:
    run_state_machine_as_test(
        seed(number)(type("Chaos", (Chaos,), {"attacked": staticmethod(attacked)})),
        settings=settings(
            max_examples=SEQUENCES_OF_A_SEED if torture else 3,
            stateful_step_count=10,
            derandomize=False,  # the seed does it
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
