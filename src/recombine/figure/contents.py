"""The list of figures, and the panels of each.

To add a figure, write its panels and add one entry to FIGURES.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from recombine.figure.panel import FLOORS, Panel, r2_domain
from recombine.figure.paper_panels import paper_panels
from recombine.measure.latent.interventions import LatentInterventions, SubspaceInterventions
from recombine.measure.latent.module_recovery import RecoveredModule, RecoveredPair
from recombine.record.score import MaskScore, Score
from recombine.study.collect import Study
from recombine.study.series import FIGURE_REFERENCES, Series, finite
from recombine.study.wording import SPLIT_WORDS, mask_name, module_name
from recombine.support.split import TEACHER_SPLITS

DEEP_FLOORS = (0.0, -0.5, -1.0, -1.5)  # with a wrong latent, a model can score far below 0
FINE_FLOORS = (0.5, 0.0, -0.5)


class Figure(NamedTuple):
    """A figure's title, caption and panels. Panels are arranged two in a row."""

    title: str
    caption: str
    panels: Callable[[Study], list[Panel]]


def mask_panels(study: Study) -> Iterator[Panel]:
    for split, title in (("in_dist", "Masks trained on"), ("ood", "Masks held out")):
        series = []
        for i, run in enumerate(study.runs):
            score = None if run.last is None else run.last.split(split)
            if score is not None and score.masks:
                series.append(_by_mask(i, score.masks))
        if series:
            yield _row_panel(f"masks_{split}", title, ("trained on {support}",), series, "mask")


def active_modules_panels(study: Study) -> Iterator[Panel]:
    series, lines = [], []
    for i, run in enumerate(study.runs):
        if run.scorecard is not None:
            series.append(_by_count(i, "", run.scorecard.active_modules))
        for name, label in FIGURE_REFERENCES.items():
            if run.references and name in run.references:
                lines.append(_by_count(i, label, run.references[name].active_modules))
    if series:
        yield Panel(
            "active_modules", "R² by the number of active modules", ("trained on {support}",),
            tuple(series), tuple(lines), x_title="active modules k", domain=r2_domain(series),
        )  # fmt: skip


def probe_panels(study: Study) -> Iterator[Panel]:
    for split, title in (("in_dist", "Probe, in distribution"), ("ood", "Probe, held-out masks")):
        series = []
        for i, run in enumerate(study.runs):
            probe = None if run.last is None else run.last.probe
            if probe is not None and (values := probe.split(split)):
                series.append(Series(i, "", tuple(map(point_name, range(len(values)))), tuple(map(finite, values))))
        if series:
            yield Panel(
                f"probe_{split}", title, ("trained on {support}",), tuple(series),
                x_title="residual stream after", y_title="R² of the probe", domain=r2_domain(series),
            )  # fmt: skip


def module_panels(study: Study) -> Iterator[Panel]:
    single, trained, held_out = [], [], []
    for i, run in enumerate(study.runs):
        recovery = None if run.scorecard is None else run.scorecard.modules
        if recovery is None:
            continue
        single += _recovered(i, recovery.single)
        trained += _recovered(i, [pair for pair in recovery.pairs if pair.trained])
        held_out += _recovered(i, [pair for pair in recovery.pairs if not pair.trained])
    lines = ("dot: recovered", "tick: ceiling")
    for name, title, series, x_title in (
        ("modules_single", "Single modules", single, "module"),
        ("modules_held_out", "Pairs held out", held_out, "mask"),
        ("modules_trained", "Pairs trained on", trained, "mask"),
    ):
        if series:
            yield _row_panel(name, title, lines, series, x_title)


def latent_panels(study: Study) -> Iterator[Panel]:
    """Panels of the interventions that replace a model's own latent before it is executed."""
    words = {
        "inferred": "as inferred",
        "true": "the true latent",
        "wrong": "a wrong latent",
        "interpolated": "interpolated",
    }
    for split in TEACHER_SPLITS:
        series = []
        for i, run in enumerate(study.runs):
            done = None if run.scorecard is None else run.scorecard.interventions
            found = getattr(done, split) if isinstance(done, LatentInterventions) else None
            if found is not None:
                series.append(_conditions(i, found, words))
                series.append(_conditions(i, found, {"ceiling": words["true"]}, name="ceiling"))
        if series:
            lines = ("trained on {support}", "tick: the true latent's ceiling")
            title = f"Latent replaced, {SPLIT_WORDS[split]}"
            yield _row_panel(f"latent_{split}", title, lines, series, "latent", DEEP_FLOORS)


def subspace_panels(study: Study) -> Iterator[Panel]:
    """Panels of the interventions on the probe's subspace. The score without a change is shown once, not per block."""
    words = {"true": "the true latent", "wrong": "a wrong latent", "random": "a random change"}
    for split in TEACHER_SPLITS:
        series = []
        for i, run in enumerate(study.runs):
            done = None if run.scorecard is None else run.scorecard.interventions
            points = done.points if isinstance(done, SubspaceInterventions) else ()
            found = [(at.point, values) for at in points if (values := getattr(at, split)) is not None]
            series += [_conditions(i, values, {"none": "untouched"}) for _, values in found[:1]]
            series += [_conditions(i, values, words, f"{point_name(point)}: ") for point, values in found]
        if series:
            lines, title = ("in the residual stream after …",), f"Subspace replaced, {SPLIT_WORDS[split]}"
            yield _row_panel(f"subspace_{split}", title, lines, series, "latent", FINE_FLOORS)


def point_name(point: int) -> str:
    """The name of a point of the residual stream."""
    return "embedding" if point == 0 else f"block {point}"


def _one_view(*groups: Callable[[Study], Iterable[Panel]]) -> Callable[[Study], list[Panel]]:
    """The panels of all groups. Panels of one group get the same axis, so that they can be compared."""

    def make(study: Study) -> list[Panel]:
        found = []
        for group in groups:
            panels = list(group(study))
            low = min((panel.domain[0] for panel in panels), default=0.0)
            found += [replace(panel, domain=(low, panel.domain[1])) for panel in panels]
        return found

    return make


FIGURES: Mapping[str, Figure] = {
    "results": Figure(
        "Generalisation to unseen combinations of modules",
        "Lines are means over seeds. Bands, drawn only for solid lines, show the range of two seeds, or the 95 % "
        "interval of the mean of three or more. Grey lines are the references. Values beyond the axis are drawn at its "
        "edge.",
        paper_panels,
    ),
    "masks": Figure(
        "R² of each mask at the last snapshot",
        "One row per mask, named after its active modules. Bars are intervals over seeds.",
        _one_view(mask_panels),
    ),
    "active_modules": Figure(
        "Tasks with more, or fewer, active modules",
        "All masks with k active modules, at the last snapshot.",
        _one_view(active_modules_panels),
    ),
    "probe": Figure(
        "Decoding the latent, layer by layer",
        "R² of a linear probe of the residual stream, fitted on in-distribution tasks, at the last snapshot.",
        _one_view(probe_panels),
    ),
    "modules": Figure(
        "Modules recovered",
        "Dots: R² of the recovered modules. Ticks: the ceiling, the teacher's own modules with this model's inference.",
        _one_view(module_panels),
    ),
    "interventions": Figure(
        "Replacing the latent",
        "R² after the latent, or the subspace of the residual stream that the probe reads, is set to another value; at "
        "the last snapshot.",
        _one_view(latent_panels, subspace_panels),
    ),
}


def all_panels(study: Study) -> dict[str, Panel]:
    """Every panel, by name. Those of the results figure are always included, others only if there is data."""
    return {panel.name: panel for figure in FIGURES.values() for panel in figure.panels(study)}


def _row_panel(
    name: str,
    title: str,
    lines: tuple[str, ...],
    series: list[Series],
    x_title: str,
    floors: tuple[float, ...] = FLOORS,
) -> Panel:
    return Panel(name, title, lines, tuple(series), x_title=x_title, domain=r2_domain(series, floors), rows=True)


def _by_mask(run: int, masks: Mapping[str, MaskScore]) -> Series:
    masks_in_order = sorted(masks, reverse=True)
    r2 = tuple(finite(masks[mask].r2) for mask in masks_in_order)
    return Series(run, "", tuple(map(mask_name, masks_in_order)), r2)


def _by_count(run: int, name: str, scores: Mapping[str, Score]) -> Series:
    counts = sorted(map(int, scores))
    return Series(run, name, tuple(counts), tuple(finite(scores[str(k)].r2) for k in counts))


def _recovered(run: int, entries: Sequence[RecoveredModule | RecoveredPair]) -> list[Series]:
    if not entries:
        return []
    x = tuple(
        module_name(entry.module) if isinstance(entry, RecoveredModule) else mask_name(entry.mask) for entry in entries
    )
    recovered, ceiling = (tuple(finite(getattr(entry, key)) for entry in entries) for key in ("r2", "ceiling"))
    return [Series(run, "recovered", x, recovered), Series(run, "ceiling", x, ceiling)]


def _conditions(run: int, values: object, words: Mapping[str, str], prefix: str = "", name: str = "") -> Series:
    y = tuple(finite(getattr(values, condition)) for condition in words)
    return Series(run, name, tuple(prefix + word for word in words.values()), y)
