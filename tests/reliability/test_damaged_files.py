"""Whatever the files of a run contain, every command shows correct numbers or refuses in one line.

One file at a time of a study of two runs is damaged, and every function that reads runs is called on it. Each score
that is shown must be the same as before the damage.
"""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

import recombine.page.sweep
import recombine.terminal.scorecard
from recombine.cli.main import main
from recombine.errors import InputError
from recombine.jobs.selection import store_selection
from recombine.page.report import render_page
from recombine.record.codec import encode, plain
from recombine.record.sweep import SweepLine
from recombine.run.load import load_model
from recombine.serve.library import Library
from recombine.serve.live_verdicts import _judge
from recombine.study.collect import collect
from recombine.study.summary import final_scores
from recombine.study.sweep_results import sweep_results as rank_sweep
from recombine.study.verdict import judge
from recombine.terminal.tables import print_scores, print_verdicts
from tests.reliability.damage import CHANGES, KINDS, damage
from tests.reliability.small_run import NUM_STEPS, SMALL, finish, small_config, without_copies

RUN, OTHER = "transformer", "hypertransformer"
OTHER_NUMBERS = ("huge number",)  # a number in the place of another is for checksums to find


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of two examined runs, with their references and all other files that can be stored."""
    place = tmp_path_factory.mktemp("place") / "runs"
    other = {"model": {**SMALL["model"], "kind": "hypertransformer"}}
    for name, changes in ((RUN, {}), (OTHER, other)):
        finish(place / name, small_config(**changes))
        assert main(["eval", str(place / name), "--json"]) == 0
        store_selection(place / name, load_model(place / name))
    lines = [SweepLine(name, name, 0, {"model.kind": name}, NUM_STEPS) for name in (RUN, OTHER)]
    (place / "sweep.jsonl").write_text("".join(f"{encode(line)}\n" for line in lines))
    return place


def report(place: Path) -> Any:
    """Everything that `recombine report` does, except drawing."""
    study = collect([place])
    verdicts, scores = judge(study), list(final_scores(study))
    for table in scores:
        print_scores(table)
    print_verdicts(verdicts)
    rows = {table.title: {**table.models, **table.references} for table in scores}
    shown = {title: {name: dict(row.r2) for name, row in table.items()} for title, table in rows.items()}
    return {"scores": shown, "verdicts": [plain(verdict) for verdict in verdicts]}, study


def evaluate(place: Path) -> Any:
    found: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        show = recombine.terminal.scorecard.print_examined
        patch.setattr(
            recombine.terminal.scorecard,
            "print_examined",
            lambda path, one: (show(path, one), found.append(one.as_json())),
        )
        command(["eval", str(place / RUN)])
    return found[0]


def export(place: Path) -> Any:
    command(["export", str(place), "--weights", "--out", str(place.parent / "out.zip")])


def sweep_results(place: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recombine.page.sweep, "write_sweep_report", lambda *_: "the page")
        command(["sweep", "results", str(place)])


def serve(place: Path) -> Any:
    """The rows of the page's table, curves, differences and verdicts. No damage to a run is an error here."""
    library = Library(place)
    library.refresh()
    for name in library.runs:
        encode(library.curve(name))
    with suppress(InputError):
        library.difference(RUN, OTHER)
    encode(library.sweeps())
    encode(_judge(list(library.runs.values()), place))
    rows = json.loads(encode(library.table()))
    return {row["name"]: {name: value for name, value in row.items() if name in SHOWN} for row in rows}


SHOWN = ("measured", "loss", "in_dist", "ood", "control", "control_modules")


def resume(place: Path) -> Any:
    finish(place / RUN)


def command(arguments: list[str]) -> None:
    """Run a command. Its one-line error is raised as an exception; any other failure fails the test."""
    if code := main(arguments):
        raise InputError("command", arguments[0], f"exit code {code}")


RUN_FILES = ("config.toml", "metrics.jsonl", "status.json", "env.json", "scorecard.json", "selection.json")
SAVED = tuple(f"checkpoints/step-{NUM_STEPS:09d}/{name}" for name in ("manifest.json", "config.toml", "metrics.jsonl"))
REFERENCES = "references"

# What reads which files. Each damage of a file is tried with every reader of it.
READERS: dict[str, tuple[Callable[[Path], Any], tuple[str, ...]]] = {
    "report": (report, (*RUN_FILES[:5], REFERENCES)),
    "eval": (evaluate, (*RUN_FILES[:5], REFERENCES, *SAVED)),
    "export": (export, (*RUN_FILES, REFERENCES, *SAVED)),
    "serve": (serve, (*RUN_FILES, "sweep.jsonl", REFERENCES)),
    "sweep results": (sweep_results, ("metrics.jsonl", "status.json", "selection.json", "sweep.jsonl")),
    "train": (resume, ("config.toml", "metrics.jsonl", "timing.jsonl", "env.json", "status.json", *SAVED)),
}
RANDOM = (*CHANGES, "truncated", "not UTF-8")
FAST = ("report", "serve", "sweep results")


def file_of(place: Path, name: str) -> Path:
    if name == REFERENCES:
        return next((place / REFERENCES).iterdir())
    return place / name if name == "sweep.jsonl" else place / RUN / name


def _attempts(name: str, kind: str, torture: bool) -> int:
    if kind not in RANDOM:
        return 1
    return 40 if torture else 1


def as_before(found: Any, before: Any, where: str = "$") -> None:
    """Each number is the same as before or missing, or all belong to an earlier step that is named."""
    if isinstance(before, dict) and isinstance(found, dict):
        if any(before.get(key) != found.get(key) for key in ("step", "measured")):
            return
        for name in before.keys() & found.keys():
            as_before(found[name], before[name], f"{where}.{name}")
    elif isinstance(before, list) and isinstance(found, list) and len(before) == len(found):
        for i, (one, other) in enumerate(zip(found, before, strict=True)):
            as_before(one, other, f"{where}[{i}]")
    elif isinstance(before, int | float) and isinstance(found, int | float):
        assert found == pytest.approx(before, rel=1e-4), where


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", READERS)
def test_damage_is_refused_in_one_line_or_does_no_harm(
    place: Path,
    tmp_path: Path,
    name: str,
    kind: str,
    torture: bool,
    attacked: Callable,
    capsys: pytest.CaptureFixture[str],
) -> None:
    read, files = READERS[name]
    if not torture:
        files = Random(f"{name} {kind}").sample(files, min(len(files), 3 if name in FAST else 2))
    before = read(shutil.copytree(place, tmp_path / "good" / "runs"))
    for file in files:
        for attempt in range(_attempts(name, kind, torture)):
            copy = tmp_path / "runs"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(place, copy)
            damage(file_of(copy, file), kind, Random(f"{file} {kind} {attempt}"))
            capsys.readouterr()
            attacked("a damaged file, read by a command")
            try:
                found = read(copy)
            except (InputError, OSError) as error:
                assert "\n" not in str(error), (file, attempt)
                said = capsys.readouterr().err.splitlines()
                assert len([line for line in said if line.startswith("recombine: ")]) <= 1, said
                assert name != "serve"
                continue
            if name == "report":
                found, study = found
                if torture and study != collect([place]):
                    render_page(study, judge(study), tmp_path)
            if kind not in OTHER_NUMBERS:
                as_before(found, before[0] if name == "report" else before)


DEEP = "[" * 3000 + "]" * 3000
CASES = {
    "a misspelt key of a row": ("metrics.jsonl", '"in_dist"', '"in_dst"'),
    "a misspelt split of a row": ("metrics.jsonl", '"ood": {"r2"', '"odo": {"r2"'),
    "a row of 3,000 lists": ("metrics.jsonl", '"loss": null', f'"loss": {DEEP}'),
    "a mask that is none": ("metrics.jsonl", '"masks": {"', '"masks": {"x'),
    "a loss below zero": ("metrics.jsonl", '"mse": ', '"mse": -'),
    "a score too large to average": ("metrics.jsonl", '"nmse": ', '"nmse": 1e308, "x": '),
    "a count of modules that is none": ("scorecard.json", '"2": {', '"two": {'),
    "a probe of fewer points": ("metrics.jsonl", '"probe": {"in_dist": [', '"probe": {"in_dist": [0.5, '),
    "a configuration without its steps": ("config.toml", "num_steps = 12", "num_steps = "),
}


@pytest.mark.parametrize(("file", "old", "new"), CASES.values(), ids=CASES)
def test_numbers_are_not_made_of_damaged_files(
    place: Path, tmp_path: Path, file: str, old: str | None, new: str
) -> None:
    """Tested without checkpoints, whose copies would be shown instead."""
    copy = shutil.copytree(place, tmp_path / "runs")
    without_copies(copy / RUN)
    text = (copy / RUN / file).read_text()
    assert old is None or old in text
    (copy / RUN / file).write_text(new if old is None else text.replace(old, new, 1))
    with pytest.raises(InputError):
        report(copy)


DEEP_CHANGE = f'{{"changes": [{{"step": 0, "fields": {{"seed": [0, {DEEP}]}}}}]}}'


@pytest.mark.parametrize("content", ['{"starts": 5}', DEEP_CHANGE, "[]", "5", "\ud800"], ids=range(5))
def test_a_run_resumes_beside_a_damaged_env(place: Path, tmp_path: Path, content: str) -> None:
    """Nothing depends on that file: it is for people to read."""
    copy = shutil.copytree(place, tmp_path / "runs")
    (copy / RUN / "env.json").write_bytes(content.encode(errors="surrogatepass"))
    resume(copy)
    assert len(json.loads((copy / RUN / "env.json").read_bytes())["starts"]) == 1


def test_a_status_without_a_number_is_unknown(place: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(place, tmp_path / "runs")
    file = copy / RUN / "status.json"
    file.write_text(file.read_text().replace('"num_steps": 12', '"num_steps": null'))
    _, study = report(copy)
    assert {run.model: run.status.state for run in study.runs} == {RUN: "unknown", OTHER: "done"}
    assert "unknown" in render_page(study, judge(study), tmp_path)


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "a\\b", "a\0b", ".hidden"])
def test_a_sweep_lists_no_path(place: Path, tmp_path: Path, name: str) -> None:
    copy = shutil.copytree(place, tmp_path / "runs")
    (copy / "sweep.jsonl").write_text(f"{encode(SweepLine(name, 'a', 0, {}, NUM_STEPS))}\n")
    with pytest.raises(InputError):
        sweep_results(copy)
    assert Library(copy).refresh()


@pytest.mark.parametrize("field", ["name", "STEP", ""])
def test_a_sweep_lists_no_field_that_makes_no_column(place: Path, tmp_path: Path, field: str) -> None:
    with pytest.raises(InputError):
        sweep_results(_swept_over(place, tmp_path, field))


@pytest.mark.parametrize("field", ['a"b', "x; DROP TABLE runs", '"; DROP TABLE runs; --'])
def test_a_field_is_a_name_and_never_a_query(place: Path, tmp_path: Path, field: str) -> None:
    results = rank_sweep(_swept_over(place, tmp_path, field))
    assert results.fields == [field]
    assert [one.point for one in results.ranked] == [{field: 1}]


def _swept_over(place: Path, tmp_path: Path, field: str) -> Path:
    copy = shutil.copytree(place, tmp_path / "runs")
    (copy / "sweep.jsonl").write_text(f"{encode(SweepLine(RUN, 'a', 0, {field: 1}, NUM_STEPS))}\n")
    return copy
