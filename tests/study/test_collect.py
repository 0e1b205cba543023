"""Collecting run directories: finished and unfinished runs, and runs that are not comparable."""

import json
import shutil
from pathlib import Path

import pytest

from recombine.cli.main import main
from recombine.errors import InputError
from recombine.measure.scorecard import Scorecard
from recombine.storage.writer import write_scorecard
from recombine.study.collect import collect
from tests.reliability.small_run import finish, small_config


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs")
    finish(path / "a")
    finish(path / "nested" / "b", small_config(seed=1), stop_at=4)
    return path


def test_finds_runs_below(runs: Path) -> None:
    study = collect([runs])
    assert [(run.model, run.support, run.seed, run.finished) for run in study.runs] == [
        ("transformer", "connected+", 0, True),
        ("transformer", "connected+", 1, False),
    ]
    assert [row.step for row in study.runs[1].rows] == [0, 4]
    assert {"100100", "010010", "001001"} >= set(study.runs[0].rows[-1].ood.masks) > set()
    assert collect([runs / "a"]).runs[0] == collect([runs / "a", runs / "a"]).runs[0]


def test_a_row_that_is_being_written_is_left_out(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "a", tmp_path / "a")
    with (tmp_path / "a" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 16, "lo')
    assert [row.step for row in collect([tmp_path]).runs[0].rows] == [0, 4, 8, 12]


def test_damage_is_one_clear_line(runs: Path, tmp_path: Path) -> None:
    for name, content, complaint in [
        ("metrics.jsonl", "nonsense\n", "row 1 of metrics.jsonl cannot be read"),
        ("config.toml", "= [", "is not valid TOML"),
        ("config.toml", "[task]\ninput_dim = -1\n", "task.input_dim = -1"),
        ("scorecard.json", "{", "cannot be read"),
    ]:
        path = tmp_path / "run"
        shutil.copytree(runs / "a", path)
        shutil.rmtree(path / "checkpoints")  # or their copies of the files are shown
        (path / name).write_text(content)
        with pytest.raises(InputError) as caught:
            collect([path])
        assert complaint in str(caught.value)
        assert str(path) in str(caught.value)
        shutil.rmtree(path)


def test_runs_that_do_not_belong_together(tmp_path: Path) -> None:
    finish(tmp_path / "a", stop_at=0)
    finish(tmp_path / "b", small_config(task={"episode_length": 4}), stop_at=0)
    with pytest.raises(InputError, match=r"do not belong together: task\.episode_length is 3 in .*a and 4 in .*b"):
        collect([tmp_path])
    shutil.rmtree(tmp_path / "b")
    finish(tmp_path / "c", stop_at=0)
    with pytest.raises(InputError, match="are both transformer on connected\\+, seed 0"):
        collect([tmp_path])


def test_other_settings_are_not_other_seeds(tmp_path: Path) -> None:
    finish(tmp_path / "a", stop_at=0)
    finish(tmp_path / "b", small_config(seed=1, model={"num_heads": 2}), stop_at=0)
    with pytest.raises(InputError, match="differ in model: they are not seeds of one experiment"):
        collect([tmp_path])
    shutil.rmtree(tmp_path / "b")
    for name, masks in (("c", ["110", "011"]), ("d", ["110", "101"])):
        kind = "transformer" if name == "c" else "hypertransformer"
        support = {"name": "mine", "masks": masks}
        finish(tmp_path / name, small_config(task={"support": support}, model={"kind": kind}, seed=2), stop_at=0)
    with pytest.raises(InputError, match="have different supports of the same name, mine"):
        collect([tmp_path])


def test_models_of_other_teachers_are_not_compared(tmp_path: Path) -> None:
    finish(tmp_path / "a", stop_at=0)
    finish(tmp_path / "b", small_config(task={"support": "connected"}, teacher_seed=3), stop_at=0)
    with pytest.raises(InputError, match="same seed \\(0\\) and different teachers \\(3 and 0\\)"):
        collect([tmp_path])


def test_a_scorecard_of_an_earlier_step_is_not_shown(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "a", tmp_path / "a")
    for step, shown in ((12, True), (8, False)):
        write_scorecard(tmp_path / "a", Scorecard(step=step, num_parameters=1, active_modules={}), "")
        assert (collect([tmp_path]).runs[0].scorecard is not None) is shown


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    for arguments, complaint in [
        ([str(tmp_path / "empty")], "no run in it"),
        ([str(tmp_path / "missing")], "no such directory"),
        ([str(tmp_path / "file")], "is a file; name a directory"),
        ([], "name at least one"),
    ]:
        assert main(["report", *arguments]) == 2
        error = capsys.readouterr().err
        assert complaint in error
        assert error.count("\n") == 1
    assert main(["eval", str(tmp_path / "empty")]) == 2
    assert "not a run directory" in capsys.readouterr().err


@pytest.mark.slow
def test_the_report_is_the_same_every_time(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        assert main(["report", str(runs), "--out", str(tmp_path / name)]) == 0
        assert str(tmp_path / name / "index.html") in capsys.readouterr().out.replace("\n", "")
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert {"index.html", "verdicts.json", "results.png", "results.svg"} <= set(files)
    for name in files:
        if name != "index.html":  # it shows the runs' paths as seen from where it lies
            assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    assert len(json.loads((tmp_path / "one" / "verdicts.json").read_text())) == 7
