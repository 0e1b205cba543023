"""Means over seeds in tables: over all seeds or none, with the steps at which they were measured."""

from dataclasses import replace
from statistics import fmean

import msgspec
import pytest

from recombine.page.report_sections import score_section
from recombine.storage.reader import StoredRun
from recombine.study.collect import Study
from recombine.study.interval import all_or_none
from recombine.study.series import model_scores, reference_scores, reference_series, summarise_references
from recombine.study.summary import final_scores
from recombine.terminal.markdown import score_tables
from tests.study.studies import make_run, with_reference, with_score


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
