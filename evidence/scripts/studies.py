"""Tables of a study: every panel of the paper, and the further measures of the models."""

from collections.abc import Sequence
from io import StringIO
from itertools import product
from statistics import fmean

from records import MAIN, H, T, final_masks, final_r2, mask_r2, study
from rich.console import Console

from recombine.config.preset import preset_config
from recombine.measure.latent.interventions import LatentInterventions, SubspaceInterventions
from recombine.measure.latent.module_recovery import RecoveredModule, RecoveredPair
from recombine.measure.scorecard import Scorecard
from recombine.storage.reader import StoredRun
from recombine.study.collect import Study, field_value
from recombine.study.panel_d_masks import COMPARED, outside_both
from recombine.study.series import models, reference_scores, supports
from recombine.study.summary import final_scores
from recombine.study.verdict import Part, judge
from recombine.study.wording import REFERENCE_WORDS, VERDICT_MARKS, fixed, with_band
from recombine.terminal.markdown import criterion, measured, score_tables, table
from recombine.terminal.tables import print_scores


def presets() -> str:
    """The presets' sizes, by the fields that they set."""
    rows = []
    for words, field in (
        ("inputs d", "task.input_dim"),
        ("hidden units h of a task", "task.hidden_dim"),
        ("length N of an episode", "task.episode_length"),
        ("width of the trunk", "model.embed_dim"),
        ("blocks", "model.num_layers"),
        ("hidden units of the generated layer", "model.hidden_dim"),
        ("size of the latent", "model.latent_dim"),
        ("episodes in a batch", "optimizer.batch_size"),
        ("steps", "optimizer.num_steps"),
        ("episodes scored, of each split", "measure.episodes"),
        ("snapshots", "measure.snapshots"),
    ):
        cells = []
        for preset in ("smoke", "quick", "paper"):
            both = [field_value(preset_config(preset, model), field) for model in (T, H)]
            known = dict.fromkeys(f"{value:,}" for value in both if value is not None)
            cells.append(" and ".join(known))
        rows.append((words, f"`{field}`", *cells))
    return table(("", "field", "`smoke`", "`quick`", "`paper`"), rows, left=2)


def verdicts(names: Sequence[str]) -> str:
    """Each claim at each scale, side by side."""
    judged = [judge(study(name)) for name in names]
    rows = []
    for found in zip(*judged, strict=True):
        claim = (str(found[0].number), found[0].claim)
        for parts in zip(*(verdict.parts for verdict in found), strict=True):
            rows.append((*claim, *_statistic(parts)))
            claim = ("", "")
        rows.append(("", "", "**verdict**", "", *(f"**{one.state}** ({one.remark})" for one in found)))
        for readings in zip(*(verdict.beside for verdict in found), strict=True):
            rows += [("", "", *_statistic(parts)) for parts in zip(*(one.parts for one in readings), strict=True)]
            rows.append(("", "", f"*by {readings[0].name}*", "", *(f"*{one.state}*" for one in readings)))
    return table(("", "claim", "statistic", "holds if", *names), rows, left=4)


def _statistic(parts: Sequence[Part]) -> tuple[str, ...]:
    """The cells of a statistic: its words, its criterion, and what was measured at each scale."""
    cells = [f"{VERDICT_MARKS[part.state]} {measured(part)}" for part in parts]
    return parts[0].statistic, criterion(parts[0]), *cells


def scores(name: str) -> str:
    return "\n\n".join(f"Trained on `{support}`:\n\n{text}" for support, text in score_tables(study(name)))


def first_seed(name: str) -> str:
    """The output of `recombine reproduce` with one seed for the main support, with shortened verdicts."""
    one = Study(tuple(run for run in study(name).runs if run.seed == 0))
    found = next(scores for scores in final_scores(one) if f" {MAIN}," in scores.title)
    printed = StringIO()
    print_scores(found, Console(file=printed, width=80, color_system=None, force_terminal=False))
    lines = [f"{VERDICT_MARKS[claim.state]} {claim.state:<15} {claim.number}. {claim.claim}" for claim in judge(one)]
    text = "\n".join([*printed.getvalue().rstrip().splitlines(), "", *lines])
    return "```\n" + "\n".join(line.rstrip() for line in text.splitlines()) + "\n```"


def masks(name: str) -> str:
    """R² of each held-out mask."""
    rows = []
    for support in supports(study(name)):
        runs = [run for run in study(name).runs if run.support == support and run.finished]
        held_out = list(final_masks(runs[0])) if runs else []
        for mask in held_out:
            cells = [mask_r2([run for run in runs if run.model == model], mask) for model in (T, H)]
            rows.append((f"`{support}`", f"`{mask}`", *cells))
    return table(("trained on", "held-out mask", T, H), rows, left=2)


def _cards(name: str, model: str, support: str = MAIN) -> list[Scorecard]:
    runs = [run for run in study(name).runs if (run.model, run.support) == (model, support)]
    return [run.scorecard for run in runs if run.scorecard is not None]


def true_latent_r2(run: StoredRun) -> float:
    """R² on held-out masks with the true latent in place of the inferred one."""
    found = None if run.scorecard is None else run.scorecard.interventions
    assert isinstance(found, LatentInterventions)
    assert found.ood is not None
    return found.ood.true


def active_modules(name: str) -> str:
    runs = [run for run in study(name).runs if run.support == MAIN and run.scorecard and run.references]
    counts = list(runs[0].scorecard.active_modules) if runs and runs[0].scorecard else []
    rows = []
    for model in models(study(name)):
        cards = _cards(name, model)
        rows.append((model, *(with_band([card.active_modules[k].r2 for card in cards]) for k in counts)))
        improved = [card.explicit_inference.own.active_modules for card in cards if card.explicit_inference]
        if model == H and improved:
            rows.append(("with explicit inference", *(with_band([one[k].r2 for one in improved]) for k in counts)))
    by_seed = {run.seed: run.references for run in runs}
    for shown in ("ridge", "trained_task", "trained_covariance", "oracle"):
        values = [[found[shown].active_modules[k].r2 for found in by_seed.values() if found] for k in counts]
        rows.append((REFERENCE_WORDS[shown], *map(with_band, values)))
    return table(("R²", *(f"k = {k}" for k in counts)), [row for row in rows if set(row[1:]) != {"–"}])


def modules(name: str) -> str:
    """Module recovery, for the models that have a latent."""
    rows = []
    for model, support in product(models(study(name)), supports(study(name))):
        cards = [card.modules for card in _cards(name, model, support) if card.modules is not None]
        if not cards:
            continue
        groups: dict[str, list[Sequence[RecoveredModule | RecoveredPair]]] = {
            "modules alone": [card.single for card in cards],
            "pairs trained on": [[entry for entry in card.pairs if entry.trained] for card in cards],
            "pairs held out": [[entry for entry in card.pairs if not entry.trained] for card in cards],
        }
        for words, entries in groups.items():
            recovered = with_band([fmean(entry.r2 or 0.0 for entry in group) for group in entries])
            ceiling = with_band([fmean(entry.ceiling or 0.0 for entry in group) for group in entries])
            rows.append((f"`{support}`", model, words, recovered, ceiling))
        fit = with_band([card.map_r2 for card in cards if card.map_r2 is not None])
        rows.append((f"`{support}`", model, "map from the latent", fit, "1"))
    return table(("trained on", "model", "compared", "R²", "ceiling"), rows, left=3)


def over_training(name: str, steps: Sequence[int]) -> str:
    """Both models on held-out masks while they train, seed by seed."""
    rows = []
    for seed in study(name).seeds:
        runs = {run.model: run for run in study(name).runs if (run.support, run.seed) == (MAIN, seed)}
        if not {T, H} <= set(runs):
            continue
        one, other = (_held_out_over_training(runs[model]) for model in (T, H))
        less = {step: other[step] - one[step] for step in sorted(one.keys() & other.keys())}
        for words, values in ((T, one), (H, other), ("difference", less)):
            cells = [fixed(values[step]) if step in values else "–" for step in steps]
            rows.append((str(seed), words, *cells, f"{fixed(min(values.values()))} to {fixed(max(values.values()))}"))
    return table(
        ("seed", "R² on held-out masks", *(f"{step:,} steps" for step in steps), "all snapshots"), rows, left=2
    )


def _held_out_over_training(run: StoredRun) -> dict[int, float]:
    return {row.step: row.ood.r2 for row in run.rows if row.step and row.ood is not None}


def panel_d(name: str) -> str:
    """Panel D seed by seed: on each support's own held-out masks, and on the masks outside both supports."""
    rows = []
    for seed, support in product(study(name).seeds, COMPARED):
        runs = {run.model: run for run in study(name).runs if (run.support, run.seed) == (support, seed)}
        if H not in runs or runs[H].scorecard is None:
            continue
        own = {model: final_r2(run, "ood") for model, run in runs.items()}
        best = max(_held_out_over_training(runs[H]).values())
        outside = {model: outside_both(run.rows[-1].ood) for model, run in runs.items()}
        known = [reference_scores([runs[H]], one, ["ood"])[0][0] for one in ("ridge", "trained_covariance")]
        true = true_latent_r2(runs[H])
        values = (*known, own.get(T), own[H], best, true, outside.get(T), outside[H])
        rows.append((str(seed), f"`{support}`", *(fixed(value) if value is not None else "–" for value in values)))
    head = ("ridge", "trained covariance", T, H, f"{H}, best snapshot", f"{H}, true latent")
    both = (f"{T}, outside both", f"{H}, outside both")
    return table(("seed", "trained on", *head, *both), rows, left=2)


def interventions(name: str) -> str:
    """The interventions: does inference fail, or execution?"""
    rows = []
    for model, support in product(models(study(name)), supports(study(name))):
        found = [card.interventions for card in _cards(name, model, support)]
        latent = [one for one in found if isinstance(one, LatentInterventions)]
        subspace = [one for one in found if isinstance(one, SubspaceInterventions)]
        places: dict[str, Sequence[object]] = {"latent": latent} if latent else {}
        if subspace and support == MAIN:
            for points in zip(*(one.points for one in subspace), strict=True):
                places[f"subspace after block {points[0].point}"] = points
        for place, at in places.items():
            kinds = ("inferred", "true", "wrong", "ceiling") if place == "latent" else ("true", "wrong", "random")
            for kind in kinds:
                cells = [with_band([getattr(getattr(one, split), kind) for one in at]) for split in ("in_dist", "ood")]
                rows.append((f"`{support}`", model, place, kind, *cells))
    head = ("trained on", "model", "replaced", "by", "in distribution", "held-out masks")
    return table(head, rows, left=4)
