"""Which panels there are, and where each takes its numbers from."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from recombine import paper
from recombine.report.panel import Panel, loss_domain, r2_domain, training_domain
from recombine.report.series import REFERENCES, Series, finite, lookup, over_training, pooled_r2, references

if TYPE_CHECKING:
    from recombine.report.collect import RunRecord, Study

DEEP_FLOORS = (0.0, -0.5, -1.0, -1.5)  # a wrong latent can do worse than none
CONTROL_FLOORS = (0.5, 0.0, -0.5, -1.0)
FINE_FLOORS = (0.5, 0.0, -0.5)
SPLITS = (("in_dist", "in distribution"), ("ood", "held-out masks"))
COMPARED = ("connected", "disconnected")  # the supports of panel D


class Figure(NamedTuple):
    """A figure's words and its panels, two in a row."""

    title: str
    caption: str
    panels: tuple[str, ...]


FIGURES = {
    "results": Figure(
        "Generalisation to unseen combinations of modules",
        "Lines are means over seeds; bands are the range of two seeds, or the 95 % interval of the mean of three or "
        "more, and of solid lines alone. Grey rules are the references. What is beyond the axis is drawn at its edge.",
        ("ood", "loss", "probe", "control", "compared", "compared_both", "in_dist"),
    ),
    "masks": Figure(
        "R² of each mask at the last snapshot",
        "One row per mask: a module takes part where the mask has a 1. Bars are intervals over seeds.",
        ("masks_in_dist", "masks_ood"),
    ),
    "active_modules": Figure(
        "Tasks with more, or fewer, active modules",
        "All masks with k active modules, at the last snapshot.",
        ("active_modules",),
    ),
    "probe": Figure(
        "Decoding the latent, layer by layer",
        "R² of a linear probe of the residual stream, fitted on in-distribution tasks, at the last snapshot.",
        ("probe_in_dist", "probe_ood"),
    ),
    "modules": Figure(
        "Modules recovered",
        "Dots: R² of the recovered modules. Ticks: the ceiling, the most that could be recovered.",
        ("modules_single", "modules_held_out", "modules_trained"),
    ),
    "interventions": Figure(
        "Replacing the code of the task",
        "R² after the model's own code of the task is replaced by another, at the last snapshot.",
        ("latent_in_dist", "latent_ood", "subspace_in_dist", "subspace_ood"),
    ),
}


def panels(study: "Study") -> dict[str, Panel]:
    """Every panel, by name. Those of the results figure are always there, others where there is data."""
    found = [*_results(study), *_active_modules(study)]
    for figure in (_masks, _probes, _modules, _latent, _subspace):
        found += _one_view(list(figure(study)))
    return {panel.name: panel for panel in found}


def _one_view(side_by_side: list[Panel]) -> list[Panel]:
    """The same axis for panels that are there to be compared."""
    low = min((panel.domain[0] for panel in side_by_side), default=0.0)
    return [replace(panel, domain=(low, panel.domain[1])) for panel in side_by_side]


def _results(study: "Study") -> list[Panel]:
    ood = over_training(study, "", lambda row: lookup(row, "ood", "r2"))
    loss = over_training(study, "", lambda row: lookup(row, "in_dist", "mse"))
    probe = over_training(study, "residual stream", lambda row: _last(lookup(row, "probe", "ood")))
    probe += over_training(study, "latent", lambda row: lookup(row, "probe", "latent", "ood"))
    control = over_training(study, "fresh teacher", lambda row: lookup(row, "control", "r2"))
    control += over_training(study, "fresh modules", lambda row: lookup(row, "control_modules", "r2"))
    in_dist = over_training(study, "", lambda row: lookup(row, "in_dist", "r2"))
    largest = [1.5 * spread for run in study.runs for row in run.rows if (spread := _spread(row)) is not None]
    return [
        Panel(
            "ood", "A\u2002R² on held-out masks", ("trained on {support}",), tuple(ood),
            tuple(references(study, "ood", "r2")), domain=training_domain(ood, references(study, "ood", "r2")),
        ),
        Panel(
            "loss", "A\u2002Loss in distribution", ("trained on {support}; lower is better",), tuple(loss),
            tuple(references(study, "in_dist", "mse")), y_title="mean squared error", log=True,
            domain=loss_domain(loss, max(largest, default=None)),
        ),
        Panel(
            "probe", "B\u2002Latent decoded, held-out masks",
            ("solid: last residual stream", "dashed: the model's own latent"),
            tuple(probe), y_title="R² of the probe", dashed=("latent",), domain=training_domain(probe),
        ),
        Panel(
            "control", "C\u2002R² on the control", ("solid: a fresh teacher", "dashed: fresh modules, readout kept"),
            tuple(control), tuple(references(study, "control", "r2")), dashed=("fresh modules",),
            domain=training_domain(control, floors=CONTROL_FLOORS),
        ),
        *_compared(study, ood),
        Panel(
            "in_dist", "Appendix\u2002R² in distribution", ("trained on {support}",), tuple(in_dist),
            tuple(references(study, "in_dist", "r2")),
            domain=training_domain(in_dist, references(study, "in_dist", "r2")),
        ),
    ]  # fmt: skip


def _compared(study: "Study", ood: list[Series]) -> list[Panel]:
    """Panel D, on each support's own held-out masks, and on those outside both supports."""
    own = [_named(one, study.runs[one.run].support) for one in ood if study.runs[one.run].support in COMPARED]
    outside = over_training(study, "", lambda row: outside_both(lookup(row, "ood", "masks")))
    both = [_named(one, study.runs[one.run].support) for one in outside if study.runs[one.run].support in COMPARED]
    lines = ("solid: trained on connected", "dashed: trained on disconnected")
    compared_references = [one for one in references(study, "ood", "r2") if study.runs[one.run].support in COMPARED]
    domain = training_domain([*own, *both], compared_references)
    return [
        Panel(
            "compared", "D\u2002Connected or not: own held-out", lines, tuple(own), tuple(compared_references),
            dashed=("disconnected",), domain=domain, by_support=False,
        ),
        Panel(
            "compared_both", "D\u2002The masks outside both", lines, tuple(both),
            dashed=("disconnected",), domain=domain, by_support=False,
        ),
    ]  # fmt: skip


def _masks(study: "Study") -> Iterable[Panel]:
    for split, title in (("in_dist", "Masks trained on"), ("ood", "Masks held out")):
        series = [
            Series(
                i, "", *zip(*((mask, finite(masks[mask]["r2"])) for mask in sorted(masks, reverse=True)), strict=True)
            )
            for i, run in enumerate(study.runs)
            if (masks := lookup(_final(run), split, "masks"))
        ]
        if series:
            yield _row_panel(f"masks_{split}", title, ("trained on {support}",), series, x_title="mask")


def _active_modules(study: "Study") -> Iterable[Panel]:
    series, lines = [], []
    for i, run in enumerate(study.runs):
        if by_count := lookup(run.scorecard, "active_modules"):
            series.append(_by_count(i, "", by_count))
        for name, label in REFERENCES.items():
            if by_count := lookup(run.references, name, "active_modules"):
                lines.append(_by_count(i, label, by_count))
    if series:
        yield Panel(
            "active_modules", "R² by the number of active modules", ("trained on {support}",),
            tuple(series), tuple(lines), x_title="active modules k", domain=r2_domain(series),
        )  # fmt: skip


def _probes(study: "Study") -> Iterable[Panel]:
    for split, title in (("in_dist", "Probe, in distribution"), ("ood", "Probe, held-out masks")):
        series = [
            Series(i, "", tuple(map(layer_name, range(len(values)))), tuple(map(finite, values)))
            for i, run in enumerate(study.runs)
            if (values := lookup(_final(run), "probe", split))
        ]
        if series:
            yield Panel(
                f"probe_{split}", title, ("trained on {support}",), tuple(series),
                x_title="residual stream after", y_title="R² of the probe", domain=r2_domain(series),
            )  # fmt: skip


def _modules(study: "Study") -> Iterable[Panel]:
    single, trained, held_out = [], [], []
    for i, run in enumerate(study.runs):
        recovered = lookup(run.scorecard, "modules")
        if not recovered:
            continue
        single += _recovered(i, [{"x": f"module {row['module']}", **row} for row in recovered["single"]])
        pairs = [{"x": row["mask"], **row} for row in recovered["pairs"]]
        trained += _recovered(i, [row for row in pairs if row["trained"]])
        held_out += _recovered(i, [row for row in pairs if not row["trained"]])
    lines = ("dot: recovered", "tick: ceiling")
    for name, title, series, x_title in (
        ("modules_single", "Single modules", single, "module"),
        ("modules_trained", "Pairs trained on", trained, "mask"),
        ("modules_held_out", "Pairs held out", held_out, "mask"),
    ):
        if series:
            yield _row_panel(name, title, lines, series, x_title=x_title)


def _latent(study: "Study") -> Iterable[Panel]:
    """A model's own latent, replaced before it is executed."""
    words = {
        "inferred": "as inferred",
        "true": "the true latent",
        "wrong": "a wrong latent",
        "interpolated": "interpolated",
    }
    for split, where in SPLITS:
        series = []
        for i, done in _interventions(study, "latent"):
            if values := lookup(done, split):
                series.append(_conditions(i, values, words, ""))
                series.append(_conditions(i, values, {"ceiling": words["true"]}, "", name="ceiling"))
        if series:
            lines = ("trained on {support}", "tick: the true latent's ceiling")
            yield _row_panel(f"latent_{split}", f"Latent replaced, {where}", lines, series, "latent", DEEP_FLOORS)


def _subspace(study: "Study") -> Iterable[Panel]:
    """What a probe reads of the residual stream, set to something else. Untouched, it is the same after every block."""
    words = {"true": "the true code", "wrong": "a wrong code", "random": "a random change"}
    for split, where in SPLITS:
        series = []
        for i, done in _interventions(study, "subspace"):
            points = [(point["point"], values) for point in done["points"] if (values := lookup(point, split))]
            series += [_conditions(i, values, {"none": "untouched"}, "") for _, values in points[:1]]
            series += [_conditions(i, values, words, f"{layer_name(point)}: ") for point, values in points]
        if series:
            lines = ("in the residual stream after …",)
            yield _row_panel(f"subspace_{split}", f"Subspace replaced, {where}", lines, series, "code", FINE_FLOORS)


def _interventions(study: "Study", kind: str) -> Iterable[tuple[int, dict[str, Any]]]:
    for i, run in enumerate(study.runs):
        done = lookup(run.scorecard, "interventions")
        if lookup(done, "kind") == kind:
            yield i, done


def _row_panel(
    name: str,
    title: str,
    lines: tuple[str, ...],
    series: list[Series],
    x_title: str,
    floors: tuple[float, ...] = (0.0, -0.5),
) -> Panel:
    return Panel(name, title, lines, tuple(series), x_title=x_title, domain=r2_domain(series, floors), rows=True)


def layer_name(point: int) -> str:
    return "embedding" if point == 0 else f"block {point}"


def _conditions(run: int, values: dict[str, Any], words: dict[str, str], prefix: str, name: str = "") -> Series:
    kinds = [kind for kind in words if kind in values]
    return Series(
        run, name, tuple(prefix + words[kind] for kind in kinds), tuple(finite(values[kind]) for kind in kinds)
    )


def _recovered(run: int, rows: list[dict[str, Any]]) -> list[Series]:
    x = tuple(row["x"] for row in rows)
    columns = (("recovered", "r2"), ("ceiling", "ceiling"))
    return [Series(run, name, x, tuple(finite(row[key]) for row in rows)) for name, key in columns] if rows else []


def _by_count(run: int, name: str, by_count: dict[str, Any]) -> Series:
    counts = sorted(by_count, key=int)
    return Series(run, name, tuple(map(int, counts)), tuple(finite(by_count[k]["r2"]) for k in counts))


def _final(run: "RunRecord") -> dict[str, Any] | None:
    return run.rows[-1] if run.rows else None


def _last(values: list[float] | None) -> float | None:
    return values[-1] if values else None


def _spread(row: dict[str, Any]) -> float | None:
    """The mean of (y − context mean)² over the in-distribution episodes: the context mean's loss."""
    masks = lookup(row, "in_dist", "masks")
    episodes = sum(one["episodes"] for one in masks.values()) if masks else 0
    return sum(one["episodes"] * one["spread"] for one in masks.values()) / episodes if episodes else None


def outside_both(masks: dict[str, Any] | None) -> float | None:
    """R² on the masks that neither support of panel D trains on, from that of each mask."""
    trained = {mask for support in COMPARED for mask in paper.SUPPORTS[support]}
    return pooled_r2(masks, [mask for mask in masks or () if mask not in trained])


def _named(one: Series, name: str) -> Series:
    return Series(one.run, name, one.x, one.y)
