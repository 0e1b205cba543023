"""The panels of the paper's results figure: A to D, the appendix, and the novel part beside A and D.

Paper: Figure 2 (fig:results) and the appendix's figure of in-distribution performance (appfig:test-r2).
"""

from dataclasses import replace

from recombine.figure.panel import Panel, loss_domain, training_domain
from recombine.record.score import MetricsRow
from recombine.study.collect import Study
from recombine.study.panel_d_masks import COMPARED, novel_outside_both, outside_both
from recombine.study.series import Series, over_training, reference_series

CONTROL_FLOORS = (0.5, 0.0, -0.5, -1.0)
NOVEL_FLOORS = (0.0, -0.5, -1.0)  # an axis of 0 to 1: the panel shows which share of the novel part is predicted


def paper_panels(study: Study) -> list[Panel]:
    """All of the paper's panels, even without data, and those of the novel part where it was measured."""
    ood = over_training(study, "", lambda row: row.r2("ood"))
    loss = over_training(study, "", lambda row: row.in_dist.mse)
    probe = over_training(study, "residual stream", _last_residual)
    probe += over_training(study, "latent", _inferred_latent)
    control = over_training(study, "fresh teacher", lambda row: row.r2("control"))
    control += over_training(study, "fresh modules", lambda row: row.r2("control_modules"))
    in_dist = over_training(study, "", lambda row: row.r2("in_dist"))
    largest = [1.5 * spread for run in study.runs for row in run.rows if (spread := _spread(row)) is not None]
    ood_references, in_dist_references = reference_series(study, "ood"), reference_series(study, "in_dist")
    return [
        Panel(
            "ood", "A\u2002R² on held-out masks", ("trained on {support}",), tuple(ood), tuple(ood_references),
            domain=training_domain(ood, ood_references),
        ),
        *_novel_panel(study),
        Panel(
            "loss", "A\u2002Loss in distribution", ("trained on {support}; lower is better",), tuple(loss),
            tuple(reference_series(study, "in_dist", lambda score: score.mse)), y_title="mean squared error", log=True,
            domain=loss_domain(loss, max(largest, default=None)),
        ),
        Panel(
            "probe", "B\u2002Latent decoded, held-out masks",
            ("solid: last residual stream", "dashed: the model's own latent"),
            tuple(probe), y_title="R² of the probe", dashed=("latent",), domain=training_domain(probe),
        ),
        Panel(
            "control", "C\u2002R² on the control", ("solid: a fresh teacher", "dashed: fresh modules, readout kept"),
            tuple(control), tuple(reference_series(study, "control")), dashed=("fresh modules",),
            domain=training_domain(control, floors=CONTROL_FLOORS),
        ),
        *_panel_d(study, ood, ood_references),
        Panel(
            "in_dist", "Appendix\u2002R² in distribution", ("trained on {support}",), tuple(in_dist),
            tuple(in_dist_references), domain=training_domain(in_dist, in_dist_references),
        ),
    ]  # fmt: skip


def _panel_d(study: Study, ood: list[Series], ood_references: list[Series]) -> list[Panel]:
    """Panel D twice: on each support's own held-out masks, and on the masks outside both supports."""

    def compared(series: list[Series], named: bool = True) -> list[Series]:
        supports = [(one, study.runs[one.run].support) for one in series]
        return [replace(one, name=name if named else one.name) for one, name in supports if name in COMPARED]

    own = compared(ood)
    both = compared(over_training(study, "", lambda row: outside_both(row.ood)))
    references = compared(ood_references, named=False)
    lines = ("solid: trained on connected", "dashed: trained on disconnected")
    domain = training_domain([*own, *both], references)
    return [
        Panel(
            "compared", "D\u2002Connected or not: own held-out", lines, tuple(own), tuple(references),
            dashed=("disconnected",), domain=domain, by_support=False,
        ),
        Panel(
            "compared_both", "D\u2002The masks outside both", lines, tuple(both),
            dashed=("disconnected",), domain=domain, by_support=False,
        ),
        *_novel_outside(compared(over_training(study, "", _r2_of_novel_outside)), lines),
    ]  # fmt: skip


def _novel_panel(study: Study) -> list[Panel]:
    series = over_training(study, "", lambda row: None if row.novel is None else row.novel.ood.r2)
    lines = ("what blends of trained tasks miss", "trained on {support}")
    domain = training_domain(series, floors=NOVEL_FLOORS)
    return [Panel("novel", "A\u2002R² on the novel part", lines, tuple(series), domain=domain)] if series else []


def _novel_outside(series: list[Series], lines: tuple[str, ...]) -> list[Panel]:
    domain = training_domain(series, floors=NOVEL_FLOORS)
    panel = Panel(
        "compared_novel", "D\u2002The novel part outside both", lines, tuple(series),
        dashed=("disconnected",), domain=domain, by_support=False,
    )  # fmt: skip
    return [panel] if series else []


def _r2_of_novel_outside(row: MetricsRow) -> float | None:
    found = None if row.novel is None else novel_outside_both(row.novel.ood)
    return None if found is None else found.r2


def _last_residual(row: MetricsRow) -> float | None:
    return row.probe.ood[-1] if row.probe is not None and row.probe.ood else None


def _inferred_latent(row: MetricsRow) -> float | None:
    latent = None if row.probe is None else row.probe.latent
    return None if latent is None else latent.ood


def _spread(row: MetricsRow) -> float | None:
    """The mean of (y − context mean)² over the in-distribution episodes, which is the loss of the context mean."""
    masks = list((row.in_dist.masks or {}).values())
    episodes = sum(mask.episodes for mask in masks)
    return sum(mask.episodes * mask.spread for mask in masks) / episodes if episodes else None
