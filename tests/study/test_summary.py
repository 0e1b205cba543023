"""What a study says in summary, with and without explicit inference."""

from dataclasses import replace
from statistics import fmean

import msgspec
import pytest
from msgspec import structs

from recombine.config.toml import override
from recombine.page.report_sections import score_section
from recombine.storage.reader import StoredRun
from recombine.study.collect import Study
from recombine.study.explicit import trained_with_explicit_inference, with_explicit_inference
from recombine.study.interval import all_or_none
from recombine.study.series import model_scores, reference_scores, reference_series, summarise_references
from recombine.study.statistics import STATISTICS, effects
from recombine.study.summary import final_scores
from recombine.study.verdict import judge
from recombine.terminal.markdown import score_tables
from tests.study.studies import make_run, whole_study, with_reference, with_score


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
