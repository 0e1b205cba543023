"""A study: which runs belong to it, and what it says in summary, with and without explicit inference."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import msgspec
import pytest
from msgspec import structs

from recombine.cli.main import main
from recombine.config.toml import override
from recombine.errors import InputError
from recombine.measure.scorecard import Scorecard
from recombine.page.report_sections import score_section
from recombine.storage.reader import StoredRun
from recombine.storage.writer import write_scorecard
from recombine.study.collect import Study, collect
from recombine.study.explicit import trained_with_explicit_inference, with_explicit_inference
from recombine.study.interval import all_or_none
from recombine.study.series import model_scores, reference_scores, reference_series, summarise_references
from recombine.study.statistics import STATISTICS, effects
from recombine.study.summary import final_scores
from recombine.study.verdict import judge
from recombine.terminal.markdown import score_tables
from tests.reliability.small_run import finish, small_config
from tests.study.studies import make_run, whole_study, with_reference, with_score


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


def seeds(count: int = 3, **options: float) -> list[StoredRun]:
    return [make_run("transformer", "connected+", seed, **options) for seed in range(count)]


def diverged(run: StoredRun, value: float) -> StoredRun:
    return replace(run, rows=(*run.rows[:-1], with_score(run.rows[-1], "ood", r2=value)))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_seed_that_is_not_finite_is_not_left_out_of_a_mean(value: float) -> None:
    """There is no mean, because the mean of the others would flatter the model; other splits keep theirs."""
    runs = seeds()
    runs[1] = diverged(runs[1], value)
    in_dist, ood = model_scores(runs, "transformer", ("in_dist", "ood"))
    assert (len(in_dist), ood) == (3, [])
    (table,) = final_scores(Study(tuple(runs)))
    assert table.models["transformer"].r2["ood"] is None
    assert table.models["transformer"].r2["in_dist"] == pytest.approx(fmean(in_dist))


def test_a_probe_that_one_seed_lacks_has_no_mean() -> None:
    runs = seeds()
    last = runs[1].rows[-1]
    assert last.probe is not None
    without = msgspec.structs.replace(last, probe=msgspec.structs.replace(last.probe, ood=(0.1, 0.2, None)))
    runs[1] = replace(runs[1], rows=(*runs[1].rows[:-1], without))
    (table,) = final_scores(Study(tuple(runs)))
    assert table.models["transformer"].probe is None


def test_a_reference_has_no_mean_where_one_seed_is_not_finite() -> None:
    runs = seeds()
    runs[1] = with_reference(runs[1], "ridge", "ood", float("nan"))
    assert reference_scores(runs, "ridge", ("in_dist", "ood"))[1] == []
    study = Study(tuple(runs))
    drawn = {point.name for point in summarise_references(study, reference_series(study, "ood"), lambda run: True)}
    assert "ridge" not in drawn
    assert "oracle" in drawn


def test_all_or_none() -> None:
    assert all_or_none([1.0, 2]) == [1.0, 2.0]
    assert all_or_none([1.0, None]) == all_or_none([1.0, float("inf")]) == all_or_none([]) == []


def test_seeds_at_different_steps_are_told_wherever_they_are_averaged() -> None:
    runs = [*seeds(2), make_run("transformer", "connected+", 2, done=0.5)]
    study = Study(tuple(runs))
    (table,) = final_scores(study)
    markdown = dict(score_tables(study))["connected+"]
    for text in (score_section(study), markdown, table.title):
        assert "2,500" in text
        assert "5,000" in text


def test_only_the_hypertransformers_last_scores_change() -> None:
    study = whole_study(seeds=2)
    explicit = with_explicit_inference(study)
    assert explicit is not None
    for before, after in zip(study.runs, explicit.runs, strict=True):
        if before.model != "hypertransformer":
            assert before is after
            continue
        assert after.rows[:-1] == before.rows[:-1]
        assert before.scorecard is not None
        found = before.scorecard.explicit_inference.own
        last = after.rows[-1]
        assert (last.in_dist, last.ood, last.control, last.control_modules) == (
            found.in_dist, found.ood, found.control, found.control_modules,
        )  # fmt: skip
        assert after.scorecard is not None
        assert after.scorecard.novel.ood == found.novel
        assert last.probe == before.rows[-1].probe
        assert last.step == before.rows[-1].step


def test_a_run_without_these_scores_is_left_out() -> None:
    runs = [make_run("hypertransformer", "connected+", seed) for seed in range(2)]
    without = replace(runs[1], scorecard=None)
    study = replace(whole_study(seeds=1), runs=(runs[0], without))
    explicit = with_explicit_inference(study)
    assert explicit is not None
    assert [run.seed for run in explicit.runs] == [0]
    assert with_explicit_inference(replace(study, runs=(without,))) is None
    assert with_explicit_inference(replace(study, runs=(make_run("transformer", "connected+", 0),))) is None


def test_the_claims_are_judged_again_where_they_change() -> None:
    study = whole_study(seeds=3)
    verdicts = {verdict.number: verdict for verdict in judge(study)}
    third = verdicts[3]
    assert [reading.name for reading in third.explicit] == [third.reading, *(one.name for one in third.beside)]
    explicit = with_explicit_inference(study)
    assert explicit is not None
    gap = next(part for reading in third.explicit for part in reading.parts if "R² itself" in reading.name)
    assert list(gap.effects) == effects(explicit, STATISTICS["ood_gap_r2"])
    assert list(gap.effects) != effects(study, STATISTICS["ood_gap_r2"])
    assert verdicts[2].explicit == ()  # about the transformer alone
    assert verdicts[4].explicit == ()  # explicit inference does not change the residual stream
    assert verdicts[7].explicit == ()


def test_runs_that_were_trained_with_it_take_the_hypertransformers_place() -> None:
    study = whole_study(seeds=3)
    assert trained_with_explicit_inference(study) is None
    hyper = [run for run in study.runs if run.model == "hypertransformer"]
    better = [
        replace(
            run,
            config=override(run.config, {"model": {"inference_steps": 3}}),
            rows=(structs.replace(run.last, ood=structs.replace(run.last.ood, r2=0.99)),),
        )
        for run in hyper
        if run.last is not None
    ]
    fewer = replace(hyper[0], config=override(hyper[0].config, {"model": {"inference_steps": 1}}))
    both = replace(study, runs=(*study.runs, fewer, *better))
    found = trained_with_explicit_inference(both)
    assert found is not None
    assert [run.rows for run in found.runs if run.model == "hypertransformer"] == [run.rows for run in better]
    assert len(found.runs) == len(study.runs)
    third = judge(both)[2]
    assert structs.replace(third, trained_explicit=()) == judge(study)[2]  # the paper's own models are judged alone
    gap = next(part for reading in third.trained_explicit for part in reading.parts if "R² itself" in reading.name)
    assert list(gap.effects) == effects(found, STATISTICS["ood_gap_r2"]) != effects(study, STATISTICS["ood_gap_r2"])
