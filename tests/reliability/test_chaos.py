"""Chaos: whatever users and machines do to a run, every shown number is right, or the run is refused in one line.

Random sequences of training, crashes, full disks, edits, flipped bits, deleted files, examinations, reports, exports
and readings by the server. The truth is an undisturbed run. hypothesis shrinks a sequence that fails.
"""

import io
import json
import shutil
import tempfile
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from recombine.cli.main import main
from recombine.errors import InputError
from recombine.measure.snapshot import measure_snapshot
from recombine.record.codec import plain
from recombine.run.load import load_model
from recombine.serve.library import Library
from recombine.storage.thinned_metrics import curve_point
from recombine.study.collect import collect
from recombine.task.teacher import config_teacher
from tests.reliability.faults import Crash, FailingDisk, disk
from tests.reliability.small_run import NUM_STEPS, finish, result

FAULTS = ("crash", "crash after", "ENOSPC", "EIO")
BESIDE = ("config.toml", "metrics.jsonl", "status.json", "env.json", "timing.jsonl", "scorecard.json")
EDITS = ("digit", "bit", "truncate", "empty", "delete", "rows swapped")


@cache
def truth_directory() -> Path:
    """The undisturbed run, examined."""
    root = Path(tempfile.mkdtemp(prefix="recombine-truth-"))
    finish(root / "run")
    code, out, error = command("eval", root / "run", "--json")
    assert code == 0, error
    (root / "eval.json").write_text(out)
    return root


@cache
def true_eval() -> dict[str, Any]:
    return json.loads((truth_directory() / "eval.json").read_text())


@cache
def true_rows() -> dict[int, Any]:
    """The rows of metrics of the undisturbed run, by step."""
    return {row.step: row for row in collect([truth_directory() / "run"]).runs[0].rows}


@cache
def true_row(step: int) -> Any:
    """The scores after a step at which no row was due."""
    if step in true_rows():
        return true_rows()[step]
    path = truth_directory() / f"until-{step}"
    finish(path, stop_at=step)
    trained = load_model(path)
    assert trained.step == step
    return measure_snapshot(trained.config, trained.model, config_teacher(trained.config), step)


def command(*arguments: object) -> tuple[int, str, str]:
    """Run a command in this process. Returns its exit code and its output; a traceback fails the test."""
    out, error = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(error):
        code = main([str(argument) for argument in arguments])
    return code, out.getvalue(), error.getvalue()


class Chaos(RuleBasedStateMachine):
    """One run, and what happens to it."""

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="recombine-chaos-"))
        self.run = self.root / "runs" / "run"
        self.exports = 0
        self.checkpoints_touched = self.started = False

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root, ignore_errors=True)

    # What users and machines do

    @rule(until=st.integers(0, NUM_STEPS))
    def train(self, until: int) -> None:
        self._train(until)

    @rule(until=st.integers(0, NUM_STEPS), fault=st.sampled_from(FAULTS), at=st.integers(0, 150))
    def train_on_a_bad_day(self, until: int, fault: str, at: int) -> None:
        with disk(FailingDisk(at, fault)), suppress(Crash, OSError):
            self._train(until)

    def _train(self, until: int) -> None:
        self.started = True
        try:
            finish(self.run, stop_at=until)
        except InputError as refused:
            assert "\n" not in str(refused)
            assert self.checkpoints_touched, f"a run whose checkpoints are whole was refused: {refused}"

    @rule(name=st.sampled_from(BESIDE), how=st.sampled_from(EDITS), place=st.floats(0, 1, exclude_max=True))
    def damage_a_file(self, name: str, how: str, place: float) -> None:
        damage(self.run / name, how, place)

    @rule(how=st.sampled_from(EDITS), place=st.floats(0, 1, exclude_max=True))
    def damage_the_references(self, how: str, place: float) -> None:
        for path in sorted((self.run.parent / "references").glob("*.json")):
            damage(path, how, place)

    @rule(
        which=st.integers(0, 1),
        name=st.sampled_from(["state.safetensors", "manifest.json", "metrics.jsonl", "config.toml"]),
        how=st.sampled_from(EDITS),
        place=st.floats(0, 1, exclude_max=True),
    )
    def damage_a_checkpoint(self, which: int, name: str, how: str, place: float) -> None:
        found = sorted((self.run / "checkpoints").glob("step-*"), reverse=True)[which : which + 1]
        for path in found:
            self.checkpoints_touched |= damage(path / name, how, place)

    # What is shown

    @rule()
    def examine(self) -> None:
        self._check_examined(command("eval", self.run, "--json"))

    @rule(weights=st.booleans(), archive=st.booleans())
    def export(self, weights: bool, archive: bool) -> None:
        self.exports += 1
        out = self.root / f"export{self.exports}{'.zip' if archive else ''}"
        code, _, error = command("export", self.run, *(["--weights"] if weights else []), "--out", out)
        if self._refused(code, error):
            return
        self._check_rows(collect([out]).runs[0].rows)
        if weights:
            self._check_examined(command("eval", out / "run", "--json"))

    @rule()
    def report(self) -> None:
        try:
            (run,) = collect([self.run.parent]).runs
        except InputError as refused:
            assert "\n" not in str(refused)
            return
        self._check_rows(run.rows)
        for name, scores in (run.references or {}).items():
            assert plain(scores) == true_eval()["references"][name]
        if run.scorecard is not None and run.scorecard.step == NUM_STEPS:
            assert plain(run.scorecard)["active_modules"] == true_eval()["active_modules"]

    @rule()
    def serve(self) -> None:
        library = Library(self.root)
        library.refresh()
        for summary in library.table():
            if summary.name != "runs/run" or summary.measured is None:
                continue
            point = curve_point(true_rows()[summary.measured])
            assert (summary.in_dist, summary.ood, summary.loss) == (point.in_dist, point.ood, point.loss)
            for shown in library.curve(summary.name):
                assert shown == curve_point(true_rows()[shown.step])

    # What must hold

    def _check_rows(self, rows: Any) -> None:
        steps = [row.step for row in rows]
        assert steps == sorted(set(steps))
        assert [row for row in rows if row != true_rows()[row.step]] == []

    def _check_examined(self, done: tuple[int, str, str]) -> None:
        code, out, error = done
        if self._refused(code, error):
            return
        shown, truth = json.loads(out), true_eval()
        assert shown["references"] == truth["references"]
        for split in ("in_dist", "ood", "control", "control_modules"):
            assert shown[split] == plain(true_row(shown["step"]))[split]
        if shown["step"] == NUM_STEPS:
            differing = [name for name in truth if name not in ("notes", "sources") and shown[name] != truth[name]]
            assert differing == []

    def _refused(self, code: int, error: str) -> bool:
        """Check that the command was refused in one line; notes may precede it."""
        if code == 0:
            return False
        complaints = [line for line in error.splitlines() if line.startswith("recombine: ")]
        assert code in (1, 2)
        assert len(complaints) == 1, error
        return True

    @invariant()
    def nothing_is_lost(self) -> None:
        """A run with intact checkpoints resumes, whatever happened to other files, and ends as the undisturbed run."""
        if not getattr(self, "started", False) or self.checkpoints_touched or not self.run.exists():
            return
        copy = self.root / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.run, copy)
        finish(copy)
        assert result(copy) == result(truth_directory() / "run")


def damage(path: Path, how: str, place: float) -> bool:
    """Damage a file, if it exists. Returns whether anything changed."""
    if not path.is_file():
        return False
    data = path.read_bytes()
    at = int(place * len(data))
    changed = bytearray(data)
    match how:
        case "digit":  # a number is another number: what an edit by hand does
            digits = [i for i, byte in enumerate(data) if chr(byte).isdigit()]
            if digits:
                chosen = digits[int(place * len(digits))]
                changed[chosen] = ord("0") + (data[chosen] - ord("0") + 3) % 10
        case "bit" if data:
            changed[at] ^= 1 << at % 8
        case "truncate":
            changed = changed[:at]
        case "empty":
            changed = bytearray()
        case "delete":
            path.unlink()
            return True
        case "rows swapped":
            changed = bytearray(b"".join(sorted(data.splitlines(keepends=True), reverse=True)))
        case _:
            pass
    if changed == data:
        return False
    path.write_bytes(bytes(changed))
    return True


def test_every_number_shown_is_right_or_refused(torture: bool) -> None:
    run_state_machine_as_test(
        Chaos,
        settings=settings(
            max_examples=500 if torture else 6,
            stateful_step_count=10,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
