"""Verdicts, from studies whose effects are known."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from scipy import stats

from recombine.claims import CLAIMS, Statistic
from recombine.config.schema import OptimizerConfig
from recombine.figure.compose import draw_figure
from recombine.page.report_sections import run_section
from recombine.record.run_state import RunState, Status
from recombine.storage.reader import StoredRun
from recombine.study.collect import Study
from recombine.study.statistics import STATISTICS, effects, judged_curve
from recombine.study.verdict import judge, judge_part
from tests.study.studies import make_run, whole_study, with_reference, with_score

AT_LEAST, AT_MOST, WITHIN = (Statistic("x", "words", sign, 0.5) for sign in (">=", "<=", "within"))


@pytest.mark.parametrize(
    ("statistic", "effects", "state"),
    [
        (AT_LEAST, [], "not enough data"),
        (AT_LEAST, [0.9], "not enough data"),
        (AT_LEAST, [0.1], "not enough data"),
        (AT_LEAST, [0.9, 0.9], "not enough data"),
        (AT_MOST, [0.1, 0.1], "not enough data"),
        (AT_LEAST, [0.8, 0.81, 0.82], "holds"),
        (AT_LEAST, [0.2, 0.21, 0.22], "does not hold"),
        (AT_LEAST, [0.1, 0.6, 0.9], "not enough data"),
        (AT_MOST, [0.1, 0.11, 0.12], "holds"),
        (AT_MOST, [0.9, 0.91, 0.92], "does not hold"),
        (WITHIN, [0.0, 0.0], "not enough data"),
        (WITHIN, [-0.3, 0.0, 0.3], "not enough data"),
        (WITHIN, [-0.1, 0.0, 0.1], "holds"),
        (WITHIN, [-0.8, -0.81, -0.82], "does not hold"),
        (WITHIN, [0.8, 0.81, 0.82], "does not hold"),
    ],
)
def test_the_whole_interval_must_be_on_one_side(statistic: Statistic, effects: list[float], state: str) -> None:
    assert judge_part(statistic, effects).state == state


def test_the_interval_is_students() -> None:
    effects = [0.2, 0.5, 0.65]
    part = judge_part(AT_LEAST, effects)
    low, high = stats.t.interval(0.95, 2, loc=0.45, scale=stats.sem(effects))
    assert (part.mean, part.low, part.high) == pytest.approx((0.45, low, high))


@pytest.mark.parametrize("statistic", [AT_LEAST, AT_MOST, WITHIN])
def test_effects_beyond_the_bound_are_excluded_by_a_one_sided_test(statistic: Statistic) -> None:
    """The bound is the effect that a one-sided t-test rejects at just 5 %."""
    effects = [0.2, 0.5, 0.65]
    bound = judge_part(statistic, effects).bound
    assert bound is not None
    side = "greater" if statistic is AT_MOST else "less"
    assert stats.ttest_1samp(effects, bound, alternative=side).pvalue == pytest.approx(0.05)


def test_a_gap_that_is_not_there_is_decided_where_two_sides_are_not() -> None:
    """90 % of what the mean can be lies below the threshold, 95 % does not."""
    effects = [0.28, 0.36, 0.41]
    part = judge_part(AT_LEAST, effects)
    assert part.high is not None
    assert part.bound is not None
    assert part.bound < 0.5
    assert part.high == pytest.approx(stats.t.interval(0.95, 2, loc=0.35, scale=stats.sem(effects))[1])
    assert part.state == "does not hold"


def test_a_ratio_is_judged_by_its_logarithm() -> None:
    ratios = [1.5, 2.0, 4.0]
    part = judge_part(Statistic("x", "words", ">=", 1.1, "log"), ratios)
    logs = np.log(ratios)
    ends = np.exp(stats.t.interval(0.95, 2, loc=logs.mean(), scale=stats.sem(logs)))
    assert (part.mean, part.low, part.high) == pytest.approx((stats.gmean(ratios), *ends))


def test_one_computed_number_needs_no_seeds() -> None:
    assert judge_part(AT_LEAST, [0.5], least_seeds=1).state == "holds"
    assert judge_part(AT_LEAST, [0.49], least_seeds=1).state == "does not hold"
    assert [judge_part(AT_LEAST, [effect]).met for effect in (0.5, 0.49)] == [True, False]


def final(study: Study, model: str, support: str, seed: int) -> StoredRun:
    return next(r for r in study.runs if (r.model, r.support, r.seed) == (model, support, seed))


def between(run: StoredRun, split: str) -> float:
    ridge, oracle = (getattr(run.references[name], split).r2 for name in ("ridge", "oracle"))
    return (getattr(run.rows[-1], split).r2 - ridge) / (oracle - ridge)


# Of the fifteen pairs: those that connected+ holds out, and those that neither support of panel D trains on.
HELD_OUT = ("100100", "010010", "001001")
SEVEN = ("100100", "100010", "010100", "010010", "010001", "001010", "001001")


def novel(run: StoredRun, masks: Sequence[str]) -> float:
    rows = [run.scorecard.novel.ood.masks[mask] for mask in masks]
    return 1 - sum(row.contexts * row.novel_error for row in rows) / sum(row.contexts * row.novel for row in rows)


def test_every_statistic_by_hand() -> None:
    study = whole_study(seeds=3)
    expected = {name: [] for name in STATISTICS}
    for seed in range(3):
        t, h = (final(study, model, "connected+", seed) for model in ("transformer", "hypertransformer"))
        expected["transformer_in_dist"].append(between(t, "in_dist"))
        expected["loss_ratio"].append(t.rows[-1].in_dist.mse / h.rows[-1].in_dist.mse)
        expected["transformer_drop"].append(between(t, "in_dist") - between(t, "ood"))
        expected["hypertransformer_ood"].append(between(h, "ood"))
        expected["ood_gap"].append(between(h, "ood") - between(t, "ood"))
        expected["ood_gap_r2"].append(h.rows[-1].ood.r2 - t.rows[-1].ood.r2)
        expected["hypertransformer_novel"].append(novel(h, HELD_OUT))
        expected["novel_gap"].append(novel(h, HELD_OUT) - novel(t, HELD_OUT))
        for run, name in ((t, "transformer"), (h, "hypertransformer")):
            expected[f"{name}_probe"].append(run.rows[-1].probe.ood[-1])
            expected[f"{name}_control"].append(run.rows[-1].control.r2)
            expected[f"{name}_control_modules"].append(run.rows[-1].control_modules.r2)
            on = {s: between(final(study, name, s, seed), "ood") for s in ("connected", "disconnected")}
            outside, part = ({}, {})
            for s in ("connected", "disconnected"):
                last = final(study, name, s, seed)
                masks = [last.rows[-1].ood.masks[mask] for mask in SEVEN]
                spread = sum(mask.episodes * mask.spread for mask in masks)
                outside[s] = 1 - sum(mask.episodes * mask.mse for mask in masks) / spread
                part[s] = novel(last, SEVEN)
            expected[f"{name}_outside"].append(outside["connected"] - outside["disconnected"])
            expected[f"{name}_novel_outside"].append(part["connected"] - part["disconnected"])
            if name == "hypertransformer":
                expected["hypertransformer_novel_connected_outside"].append(part["connected"])
            difference = on["connected"] - on["disconnected"]
            expected[f"{name}_support"].append(difference)
            if name == "hypertransformer":
                expected["hypertransformer_connected"].append(on["connected"])
    for name, values in expected.items():
        if name != "construction_error":
            assert effects(study, STATISTICS[name]) == pytest.approx(values), name
    assert effects(study, STATISTICS["construction_error"])[0] < 1e-6
    assert {s.name for claim in CLAIMS for reading in claim.readings for s in reading.statistics} == set(STATISTICS)


def test_a_claim_holds_if_all_its_parts_do() -> None:
    for verdict in judge(whole_study(seeds=3)):
        for judged in (verdict, *verdict.beside):
            states = [part.state for part in judged.parts]
            if judged.state == "holds":
                assert set(states) == {"holds"}
            else:
                assert judged.state in states
        assert verdict.panel in ("A", "B", "C", "D", "–")
    assert [verdict.number for verdict in judge(whole_study(seeds=1))] == [1, 2, 3, 4, 5, 6, 7]


def test_what_is_not_finished_is_not_judged() -> None:
    study = whole_study(seeds=1)
    runs = [dataclasses.replace(run, rows=run.rows[:-1]) if run.model == "transformer" else run for run in study.runs]
    verdicts = judge(Study(tuple(runs)))
    assert verdicts[1].state == "not enough data"
    assert "3 runs unfinished" in verdicts[1].note
    assert verdicts[6].state == "holds", "the construction needs no run"


def test_what_is_missing_is_named() -> None:
    study = whole_study(seeds=1)
    runs = [run for run in study.runs if run.support == "disconnected"]
    bare = [dataclasses.replace(run, references=None) for run in study.runs if run.support == "connected+"]
    verdicts = judge(Study((*runs, *bare)))
    assert "no references for connected+" in verdicts[1].note
    assert "no run of the hypertransformer on connected" in verdicts[5].note
    assert "no run of the hypertransformer on disconnected" not in verdicts[5].note
    unfinished = [dataclasses.replace(run, rows=run.rows[:-1]) for run in study.runs]
    assert "no finished run of the transformer on connected+" in judge(Study(tuple(unfinished)))[1].note


def test_runs_that_only_show_that_everything_runs_judge_nothing() -> None:
    study = whole_study(seeds=3)
    optimizer = OptimizerConfig(num_steps=40)
    short = [
        dataclasses.replace(
            run,
            config=dataclasses.replace(run.config, optimizer=optimizer),
            rows=(*run.rows[:-1], msgspec.structs.replace(run.rows[-1], step=40)),
        )
        for run in study.runs
    ]
    verdicts = judge(Study(tuple(short)))
    assert [verdict.state for verdict in verdicts] == ["not enough data"] * 6 + ["holds"]
    assert "too short to judge by" in verdicts[0].note
    assert verdicts[0].parts[0].mean is not None, "what was measured is shown all the same"


def test_seeds_are_paired() -> None:
    """A seed that lacks one of the two models does not count where they are compared."""
    study = whole_study(seeds=3)
    runs = [run for run in study.runs if (run.model, run.seed) != ("hypertransformer", 1)]
    assert len(effects(Study(tuple(runs)), STATISTICS["ood_gap"])) == 2
    assert len(effects(Study(tuple(runs)), STATISTICS["transformer_drop"])) == 3


@pytest.mark.parametrize("ridge", [0.995, 0.999])
def test_without_room_between_ridge_and_the_oracle_nothing_is_judged_by_it(ridge: float) -> None:
    """A relative score has no meaning if the oracle is not above ridge; the verdict says so."""
    study = Study(tuple(with_reference(run, "ridge", "in_dist", ridge) for run in whole_study().runs))
    claims = {verdict.number: verdict for verdict in judge(study)}
    assert claims[1].state == "not enough data"
    assert claims[1].parts[0].effects == ()
    assert "oracle" in claims[1].note


@pytest.mark.parametrize(
    "state", ["interrupted", *(pytest.param(state, marks=pytest.mark.slow) for state in ("running", "failed"))]
)
def test_a_run_is_finished_by_its_last_row(state: RunState) -> None:
    """Only the last row counts: a run that was killed before it wrote `done` has been measured, and is judged."""
    run = make_run("transformer", "connected+", 0)
    done = dataclasses.replace(run, status=Status(state, 100, 5000))
    half = dataclasses.replace(make_run("transformer", "connected+", 0, done=0.5), status=Status("done", 5000, 5000))
    assert (done.finished, done.state) == (True, "done")
    assert (half.finished, half.state) == (False, "stopped")
    for one, words in ((done, False), (half, True)):
        study = Study((one,))
        assert ("unfinished" in judge(study)[0].note) is words
        assert ("not finished" in json.dumps(draw_figure(study, "results").to_dict())) is words
        assert ("of its steps" in run_section(study, Path())) is words


def test_a_loss_of_zero_makes_no_ratio() -> None:
    runs = []
    for run in whole_study().runs:
        perfect = run.model == "hypertransformer" and run.seed == 0
        rows = (*run.rows[:-1], with_score(run.rows[-1], "in_dist", mse=0.0)) if perfect else run.rows
        runs.append(dataclasses.replace(run, rows=rows))
    found = effects(Study(tuple(runs)), STATISTICS["loss_ratio"])
    assert found == effects(whole_study(), STATISTICS["loss_ratio"])[1:]


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_too_few_seeds_lean_and_decide_nothing(seeds: int) -> None:
    for verdict in judge(whole_study(seeds=seeds))[:6]:
        met = all(part.met for part in verdict.parts)
        if seeds < 3:
            assert verdict.state == "not enough data"
            assert verdict.lean == f"{seeds} seed{'s' if seeds > 1 else ''}: leans {'yes' if met else 'no'}"
            assert verdict.remark == f"{verdict.lean}, {verdict.note}"
        else:
            assert verdict.lean == ""
            assert "leans" not in verdict.note


def test_one_criterion_that_fails_decides_though_another_has_one_seed() -> None:
    """A claim needs all its criteria, so one that fails with three seeds is enough; nothing leans any more."""
    runs = []
    for run in whole_study().runs:
        if (run.model, run.support) == ("hypertransformer", "connected"):
            runs.append(dataclasses.replace(run, rows=(*run.rows[:-1], with_score(run.rows[-1], "ood", r2=-1.0))))
        elif run.seed == 0 or (run.model, run.support) != ("transformer", "disconnected"):
            runs.append(run)
    verdict = judge(Study(tuple(runs)))[5]
    assert verdict.state == "does not hold"
    assert {(len(part.effects), part.state) for part in verdict.parts} >= {(3, "does not hold"), (1, "not enough data")}
    assert verdict.lean == ""


ON_SPLITS = [one for claim in CLAIMS for reading in claim.readings for one in reading.statistics]


@pytest.mark.parametrize("statistic", {one.name: one for one in ON_SPLITS}.values(), ids=lambda one: one.name)
def test_a_curve_that_ends_on_its_line_just_meets_the_criterion(statistic: Statistic) -> None:
    study = whole_study(seeds=1)
    curve = judged_curve(study, statistic)
    if curve is None:
        assert not STATISTICS[statistic.name].needs
        return
    if curve.line is None or curve.metric not in ("in_dist", "ood", "control", "control_modules"):
        return  # no place on the curve, or a threshold of the quantity itself
    runs = []
    for run in study.runs:
        if (run.model, run.support) == (curve.model, curve.support):
            run = dataclasses.replace(run, rows=(*run.rows[:-1], with_score(run.rows[-1], curve.metric, r2=curve.line)))
        runs.append(run)
    expected = 0.0 if statistic.comparison == "within" else statistic.threshold
    assert effects(Study(tuple(runs)), STATISTICS[statistic.name]) == pytest.approx([expected])
