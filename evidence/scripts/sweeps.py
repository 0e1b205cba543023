"""Tables of the smaller studies, one for each question."""

from itertools import product
from statistics import fmean
from typing import Any

from records import (
    APART,
    EVIDENCE,
    MAIN,
    H,
    T,
    apart,
    chosen,
    final_masks,
    mask_r2,
    r2,
    read_rows,
    reference,
    study,
    sweep,
)

from recombine.study.collect import field_value
from recombine.study.sweep_results import Mean, Ranked, sweep_results
from recombine.study.wording import fixed, percent, with_band
from recombine.terminal.markdown import table


def length() -> str:
    """R² by episode length N."""
    runs = sweep("length")
    rows = []
    for n in sorted({run.config.task.episode_length for run in runs}):
        both = [chosen(runs, model, task__episode_length=n) for model in (T, H)]
        cells = [r2(found, split) for found in both for split in ("in_dist", "ood")]
        known = [*both[0], *both[1]]
        rows.append(
            (str(n), *cells, *(reference(known, name, "ood") for name in ("ridge", "fitted_network", "oracle")))
        )
    head = ("N", f"{T}, in distribution", f"{T}, held out", f"{H}, in distribution", f"{H}, held out")
    return table((*head, "ridge, held out", "fitted network, held out", "oracle, held out"), rows, left=0)


GAP = (
    ("N", "task.episode_length"),
    ("steps", "optimizer.num_steps"),
    ("width of the trunk", "model.embed_dim"),
    ("blocks", "model.num_layers"),
    ("hidden units of the generated layer", "model.hidden_dim"),
    ("latent's size", "model.latent_dim"),
)


def gap() -> str:
    """The difference between the two models on held-out masks, with one setting changed at a time."""
    runs = sweep("gap")
    seeds = sorted({run.seed for run in runs})
    base = [run for run in study("quick").runs if run.support == MAIN and run.seed in seeds]
    rows = [
        ("as `quick`", "", *apart([run for run in base if run.model == T], [run for run in base if run.model == H]))
    ]
    for words, field in GAP:
        defaults = {field_value(run.config, field) for run in base}
        values = {field_value(run.config, field) for run in runs} - defaults
        for value in sorted(value for value in values if isinstance(value, int)):
            both = [chosen(runs, model, **{field.replace(".", "__"): value}) for model in (T, H)]
            own = [run for run in base if run.model == T]
            rows.append((words, f"{value:,}", *apart(both[0] or own, both[1])))
    return table(("changed", "to", *APART), rows, left=2)


def diversity() -> str:
    """R² by the set of masks that is trained on."""
    runs = sweep("diversity")
    seeds = sorted({run.seed for run in runs})
    base = [run for run in study("quick").runs if run.seed in seeds]
    words = {
        "connected": "6 of 15 pairs (`connected`)",
        "connected+": "12 of 15 pairs (`connected+`)",
        "all-but-one": "14 of 15 pairs",
        "with-singles": "the same 12 pairs, and 6 single modules",
        "triples": "17 of 20 triples",
    }
    rows = []
    for name, what in words.items():
        both = [[run for run in (*base, *runs) if (run.model, run.support) == (model, name)] for model in (T, H)]
        known = [reference(both[0], one, "ood") for one in ("trained_task", "trained_covariance")]
        same = [mask_r2(some, "100100") if "100100" in final_masks(some[0]) else "–" for some in both]
        rows.append((what, str(len(final_masks(both[0][0]))), *apart(*both)[:-1], *known, *same))
    head = ("trained on", "masks held out", *APART[:-1], "best trained task", "trained covariance")
    return table((*head, f"{T} on `100100`", f"{H} on `100100`"), rows)


def covariance() -> str:
    """The effect of the noise on the reference `trained_covariance`, compared with the models."""
    found = read_rows("covariance")
    columns = [(name, split) for name in ("quick", "paper") for split in ("in_dist", "ood")]
    seeds = {(row["study"], row["seed"]) for row in found}
    rows = []
    for noise in dict.fromkeys(row["noise"] for row in found):
        some = [row for row in found if row["noise"] == noise]
        cells = [with_band([row[split] for row in some if row["study"] == name]) for name, split in columns]
        rows.append((f"trained covariance, noise {100 * noise:g} %", *cells))
    for model in (T, H):
        runs = {
            name: [
                one
                for one in study(name).runs
                if (one.model, one.support) == (model, MAIN) and (name, one.seed) in seeds and one.finished
            ]
            for name, _ in columns
        }
        rows.append((f"**{model}**", *(r2(runs[name], split) for name, split in columns)))
    head = ("", "`quick`, in distribution", "`quick`, held out", "`paper`, in distribution", "`paper`, held out")
    return table(head, rows)


def linearity() -> str:
    """How linear the tasks of held-out pairs are, and how well the tasks of their single modules add up to them."""
    found = [row for row in read_rows("linearity") if row["split"] == "ood"]
    words = {"linear": "best affine function of x", "added": "best combination of the two modules' own tasks"}
    rows = []
    for name, (key, what) in product(("paper", "quick"), words.items()):
        values = [row[key] for row in found if row["study"] == name]
        cell = f"{fixed(fmean(values))} ({fixed(min(values))} to {fixed(max(values))})"
        rows.append((f"`{name}`", what, cell, ", ".join(map(fixed, values[:3]))))
    teachers = len({row["seed"] for row in found})
    return table(("", "approximation", f"{teachers} teachers: mean (range)", "teachers of seeds 0, 1, 2"), rows, left=2)


def execution() -> str:
    """The hypertransformer on tasks with k active modules, with the inferred and with the true latent."""
    found = read_rows("execution")
    rows, ks = [], sorted({row["k"] for row in found})
    for name in dict.fromkeys(row["study"] for row in found):
        for kind in ("inferred", "true", "ceiling"):
            cells = (with_band([row[kind] for row in found if (row["study"], row["k"]) == (name, k)]) for k in ks)
            rows.append((f"`{name}`", kind, *cells))
    return table(("", "latent", *(f"k = {k}" for k in ks)), rows, left=2)


def decoding() -> str:
    """How much of the probe's R² is the mask, and how much the weights within a mask."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in read_rows("decoding"):
        groups.setdefault((row["study"], row["model"], row["place"], row["split"]), []).append(row)
    rows = []
    for (name, model, place, split), seeds in groups.items():
        r2_of_z, told, within = ([row[key] for row in seeds] for key in ("all", "mask", "within"))
        masks = " to ".join(dict.fromkeys((percent(min(told)), percent(max(told)))))
        where = {"in_dist": "trained", "ood": "held out"}[split]
        rows.append((f"`{name}`", model, place, where, with_band(r2_of_z), masks, with_band(within)))
    head = ("", "model", "probe on", "masks", "R² of z", "mask identified", "R² of z within masks")
    return table(head, rows, left=4)


def selection() -> str:
    """A corner of the paper's hyperparameter search: every configuration, ranked by the paper's selection score."""
    rows = []
    for kind in (T, H):
        results = sweep_results(EVIDENCE / f"corner-{kind}.zip")
        in_dist = results.best_in_dist.configuration if results.best_in_dist else None
        for i, one in enumerate(results.ranked):
            best = [
                words for words, is_best in (("held out", i == 0), ("trained", one.configuration == in_dist)) if is_best
            ]
            cells = [_mean(one.scores[name]) for name in ("select_ood", "ood", "select_in_dist", "in_dist")]
            rows.append((kind, _point(one), *cells, f"**{' and '.join(best)}**" if best else ""))
    head = (
        "model",
        "configuration",
        "held out, to select",
        "held out, to report",
        "trained, to select",
        "trained, to report",
        "best by",
    )
    return table(head, rows, left=2)


def _point(one: Ranked) -> str:
    return ", ".join(f"{name.rpartition('.')[2]} {value}" for name, value in one.point.items() if name != "model.kind")


def _mean(score: Mean) -> str:
    between = "" if score.low is None or score.high is None else f" [{fixed(score.low)}, {fixed(score.high)}]"
    return fixed(score.mean) + between


def importance() -> str:
    rows = []
    for kind in (T, H):
        for found in sweep_results(EVIDENCE / f"corner-{kind}.zip").importance:
            means = ", ".join(f"{at.value}: {fixed(at.mean)}" for at in found.means)
            rows.append((kind, f"`{found.field}`", percent(found.share), means))
    return table(("model", "field", "share of the variance", "mean R² on held-out masks, by value"), rows, left=2)
