"""The tables of the docs, from the runs in this directory and from nothing else."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from statistics import correlation, fmean, variance
from typing import Any

from readings import readings_table

from recombine import paper
from recombine.report.collect import RunRecord, Study, collect, read_run, run_directories
from recombine.report.markdown import criterion, measured, score_tables, table, with_interval
from recombine.report.numbers import fixed
from recombine.report.series import lookup, models, supports
from recombine.report.summary import final_scores
from recombine.report.sweep_results import Mean, Ranked, sweep_results
from recombine.report.tables import print_scores
from recombine.report.verdict import HOLDS, NOT_ENOUGH, judge, relative

HERE = Path(__file__).parent
T, H = "transformer", "hypertransformer"
MAIN = paper.DEFAULT_SUPPORT


@cache
def study(name: str) -> Study:
    return collect([HERE / name])


@cache
def sweep(name: str) -> tuple[RunRecord, ...]:
    """The finished runs of a sweep."""
    runs = (read_run(path) for path in run_directories(HERE / name, 1))
    return tuple(run for run in runs if run.finished)


def chosen(runs: Iterable[RunRecord], model: str, **fields: Any) -> list[RunRecord]:
    """The runs of a model whose configuration has these values: `task__episode_length=8`."""
    return [
        run
        for run in runs
        if run.model == model and all(lookup(run.config, *name.split("__")) == fields[name] for name in fields)
    ]


def r2(runs: Iterable[RunRecord], split: str) -> str:
    return with_interval([run.rows[-1][split]["r2"] for run in runs])


def reference(runs: Iterable[RunRecord], name: str, split: str) -> str:
    by_seed = {run.seed: run.references[name][split]["r2"] for run in runs if run.references}
    return with_interval(list(by_seed.values()))


# The paper's panels.


def verdicts(names: Sequence[str]) -> str:
    """Each claim at each scale, side by side."""
    judged = [judge(study(name)) for name in names]
    rows = []
    for found in zip(*judged, strict=True):
        for i, parts in enumerate(zip(*(verdict.parts for verdict in found), strict=True)):
            claim = (str(found[0].number), found[0].claim) if i == 0 else ("", "")
            cells = [f"{_mark(part.state)} {measured(part)}" for part in parts]
            rows.append((*claim, parts[0].statistic, criterion(parts[0]), *cells))
        rows.append(("", "", "**verdict**", "", *(f"**{one.state}** ({one.note})" for one in found)))
    return table(("", "claim", "statistic", "holds if", *names), rows, left=4)


def _mark(state: str) -> str:
    return {HOLDS: "✓", NOT_ENOUGH: "?"}.get(state, "✗")


def scores(name: str) -> str:
    return "\n\n".join(f"Trained on `{support}`:\n\n{text}" for support, text in score_tables(study(name)))


def first_seed(name: str) -> str:
    """What `recombine reproduce` with one seed prints of the paper's main support, and its verdicts in short."""
    one = Study(tuple(run for run in study(name).runs if run.seed == 0))
    found = next(scores for scores in final_scores(one) if f" {MAIN}," in scores[0])
    with redirect_stdout(StringIO()) as printed:
        print_scores(*found)
    lines = [f"{_mark(claim.state)} {claim.state:<15} {claim.number}. {claim.claim}" for claim in judge(one)]
    text = "\n".join([*printed.getvalue().rstrip().splitlines(), "", *lines])
    return "```\n" + "\n".join(line.rstrip() for line in text.splitlines()) + "\n```"


def masks(name: str) -> str:
    """R² of each held-out mask."""
    rows = []
    for support in supports(study(name)):
        runs = [run for run in study(name).runs if run.support == support and run.finished]
        present = [model for model in (T, H) if any(run.model == model for run in runs)]
        held_out = list(lookup(runs[0].rows[-1], "ood", "masks") or ()) if runs else []
        for mask in held_out:
            cells = [_mask([run for run in runs if run.model == model], mask) for model in present]
            rows.append((f"`{support}`", f"`{mask}`", *cells, *["–"] * (2 - len(cells))))
    return table(("trained on", "held-out mask", T, H), rows, left=2)


def _mask(runs: Sequence[RunRecord], mask: str) -> str:
    return with_interval([run.rows[-1]["ood"]["masks"][mask]["r2"] for run in runs])


def _cards(name: str, model: str, support: str = MAIN) -> list[dict[str, Any]]:
    runs = [run for run in study(name).runs if (run.model, run.support) == (model, support)]
    return [run.scorecard for run in runs if run.scorecard]


def active_modules(name: str) -> str:
    runs = [run for run in study(name).runs if run.support == MAIN and run.scorecard and run.references]
    counts = list(runs[0].scorecard["active_modules"]) if runs and runs[0].scorecard else []
    rows = []
    for model in models(study(name)):
        cards = _cards(name, model)
        rows.append((model, *(with_interval([card["active_modules"][k]["r2"] for card in cards]) for k in counts)))
    by_seed = {run.seed: run.references for run in runs}
    for shown in ("ridge", "oracle"):
        values = [[found[shown]["active_modules"][k]["r2"] for found in by_seed.values() if found] for k in counts]
        rows.append((shown, *map(with_interval, values)))
    return table(("R²", *(f"k = {k}" for k in counts)), [row for row in rows if set(row[1:]) != {"–"}])


def modules(name: str) -> str:
    """Are the teacher's modules in the hypertransformer?"""
    rows = []
    for support in supports(study(name)):
        cards = [card["modules"] for card in _cards(name, H, support)]
        if not cards:
            continue
        groups = {
            "modules alone": [card["single"] for card in cards],
            "pairs trained on": [[entry for entry in card["pairs"] if entry["trained"]] for card in cards],
            "pairs held out": [[entry for entry in card["pairs"] if not entry["trained"]] for card in cards],
        }
        for words, entries in groups.items():
            found = [with_interval([fmean(e[key] for e in group) for group in entries]) for key in ("r2", "ceiling")]
            rows.append((f"`{support}`", words, *found))
        rows.append((f"`{support}`", "map from the latent", with_interval([card["map_r2"] for card in cards]), "1"))
    return table(("trained on", "of the hypertransformer", "R²", "ceiling"), rows, left=2)


def interventions(name: str) -> str:
    """Is it inference or execution that fails?"""
    rows = []
    for support in supports(study(name)):
        cards = [card["interventions"] for card in _cards(name, H, support)]
        for kind in ("inferred", "true", "wrong", "ceiling") if cards else ():
            cells = [with_interval([card[split][kind] for card in cards]) for split in ("in_dist", "ood")]
            rows.append((f"`{support}`", H, f"{kind} latent", *cells))
    cards = [card["interventions"] for card in _cards(name, T)]
    last = [card["points"][-1] for card in cards]
    for kind in ("none", "true", "wrong", "random") if last else ():
        cells = [with_interval([point[split][kind] for point in last]) for split in ("in_dist", "ood")]
        rows.append((f"`{MAIN}`", T, f"probe's subspace: {kind}", *cells))
    for model, words in (("informed", "is shown the latent"), ("Bottleneck", "no hypernetwork")):
        runs = [run for run in study(name).runs if (run.model, run.support) == (model, MAIN) and run.finished]
        if runs:
            rows.append((f"`{MAIN}`", model, words, r2(runs, "in_dist"), r2(runs, "ood")))
    return table(("trained on", "model", "code of the task", "in distribution", "held-out masks"), rows, left=3)


# The smaller studies.


def length() -> str:
    """The curve over N."""
    runs = sweep("length")
    rows = []
    for n in sorted({run.config["task"]["episode_length"] for run in runs}):
        both = [chosen(runs, model, task__episode_length=n) for model in (T, H)]
        cells = [r2(found, split) for found in both for split in ("in_dist", "ood")]
        known = [*both[0], *both[1]]
        rows.append(
            (str(n), *cells, *(reference(known, name, "ood") for name in ("ridge", "fitted_network", "oracle")))
        )
    head = ("N", f"{T}, in distribution", "held out", f"{H}, in distribution", "held out")
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
    """What the difference between the two models on held-out masks depends on."""
    runs = sweep("gap")
    seeds = sorted({run.seed for run in runs})
    base = [run for run in study("quick").runs if run.support == MAIN and run.seed in seeds]
    rows = [
        ("as `quick`", "", *_apart([run for run in base if run.model == T], [run for run in base if run.model == H]))
    ]
    for words, field in GAP:
        section, _, name = field.partition(".")
        defaults = {lookup(run.config, section, name) for run in base}
        for value in sorted({lookup(run.config, section, name) for run in runs} - {None} - defaults):
            both = [chosen(runs, model, **{f"{section}__{name}": value}) for model in (T, H)]
            own = [run for run in base if run.model == T]
            rows.append((words, f"{value:,}", *_apart(both[0] or own, both[1])))
    return table(("changed", "to", *APART), rows, left=2)


APART = (f"{T}, held out", f"{H}, held out", "difference", "ridge", "latent decoded, held out")


def _apart(one: Sequence[RunRecord], other: Sequence[RunRecord]) -> tuple[str, ...]:
    """The cells of APART: the two models on held-out masks. Their difference is paired by seed."""
    by_seed = {run.seed: run.rows[-1]["ood"]["r2"] for run in one}
    differences = [run.rows[-1]["ood"]["r2"] - by_seed[run.seed] for run in other if run.seed in by_seed]
    decoded = [run.rows[-1]["probe"]["latent"]["ood"] for run in other]
    ridge = reference(other, "ridge", "ood")
    return (r2(one, "ood"), r2(other, "ood"), with_interval(differences), ridge, with_interval(decoded))


def diversity() -> str:
    """Which tasks are trained on."""
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
        remembered = reference(both[0], "trained_task", "ood")
        rows.append((what, str(len(both[0][0].rows[-1]["ood"]["masks"])), *_apart(*both), remembered))
    return table(("trained on", "masks held out", *APART, "best trained task"), rows)


def variation() -> str:
    """How much of the spread is the teacher's: a factorial of teachers and seeds, each with its own init and data."""
    scores: tuple[tuple[str, Callable[[RunRecord], float | None]], ...] = (
        ("R² in distribution", lambda run: run.rows[-1]["in_dist"]["r2"]),
        ("R² held out", lambda run: run.rows[-1]["ood"]["r2"]),
        ("relative R² held out", lambda run: relative(run, "ood")),
    )
    grids = [(model, words, _grid(model, of)) for model in (T, H) for words, of in scores]
    one, other = (grid for _, words, grid in grids if words == "R² held out")
    less = [[y - x for x, y in zip(*rows, strict=True)] for rows in zip(one, other, strict=True)]
    rows = []
    for model, words, grid in (*grids, (f"{H} − {T}", "R² held out", less)):
        among, within = components(grid)
        values = [value for row in grid for value in row]
        share = f"{among / (among + within):.0%}".replace("%", " %")
        between = f"{fixed(min(values))} to {fixed(max(values))}"
        rows.append((model, words, fixed(fmean(values)), between, fixed(among**0.5), fixed(within**0.5), share))
    head = ("model", "score", "mean", "range", "σ of teachers", "σ of init and data", "teachers' share of the variance")
    return table(head, rows, left=2)


def teachers() -> str:
    """The same runs, teacher by teacher."""
    runs = sweep("variation")
    rows = []
    for teacher in sorted({run.config["teacher_seed"] for run in runs}):
        both = [chosen(runs, model, teacher_seed=teacher) for model in (T, H)]
        rows.append((str(teacher), *_apart(*both)))
    return table(("teacher", *APART), rows)


def teachers_masks() -> str:
    """Which held-out masks are hard: with four teachers, for either model."""
    runs = sweep("variation")
    rows, hard = [], []
    for teacher in sorted({run.config["teacher_seed"] for run in runs}):
        both = [chosen(runs, model, teacher_seed=teacher) for model in (T, H)]
        for mask in both[0][0].rows[-1]["ood"]["masks"]:
            rows.append((str(teacher), f"`{mask}`", *(_mask(some, mask) for some in both)))
            hard.append([fmean(run.rows[-1]["ood"]["masks"][mask]["r2"] for run in some) for some in both])
    together = (
        f"Correlation of the two models' means over these {len(hard)}: {fixed(correlation(*zip(*hard, strict=True)))}."
    )
    return table(("teacher", "held-out mask", T, H), rows, left=2) + f"\n\n{together}"


def _grid(model: str, of: Callable[[RunRecord], float | None]) -> list[list[float]]:
    """A row for each teacher, an entry for each seed."""
    runs = [run for run in sweep("variation") if run.model == model]
    teachers = sorted({run.config["teacher_seed"] for run in runs})
    found = [[of(run) for run in runs if run.config["teacher_seed"] == teacher] for teacher in teachers]
    return [[value for value in row if value is not None] for row in found]


def components(grid: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Variance among the rows and within them: the estimates of a one-way analysis of variance, not below zero."""
    within = fmean(variance(row) for row in grid)
    among = variance([fmean(row) for row in grid]) - within / len(grid[0])
    return max(among, 0.0), within


def selection() -> str:
    """The corner of the paper's search: every configuration, by the score that the paper selects by."""
    rows = []
    for kind in (T, H):
        results = sweep_results(HERE / f"corner-{kind}")
        in_dist = results.best_in_dist.configuration if results.best_in_dist else None
        for i, one in enumerate(results.ranked):
            best = [
                words for words, is_best in (("held out", i == 0), ("trained", one.configuration == in_dist)) if is_best
            ]
            cells = [_mean(one.scores[name]) for name in ("select_ood", "ood", "select_in_dist", "in_dist")]
            rows.append((kind, _point(one), *cells, f"**{' and '.join(best)}**" if best else ""))
    head = ("model", "configuration", "held out: to select", "to report", "trained: to select", "to report", "best by")
    return table(head, rows, left=2)


def _point(one: Ranked) -> str:
    return ", ".join(f"{name.rpartition('.')[2]} {value}" for name, value in one.point.items() if name != "model.kind")


def _mean(score: Mean) -> str:
    between = "" if score.low is None or score.high is None else f" [{fixed(score.low)}, {fixed(score.high)}]"
    return fixed(score.mean) + between


def importance() -> str:
    rows = []
    for kind in (T, H):
        for found in sweep_results(HERE / f"corner-{kind}").importance:
            means = ", ".join(f"{value}: {fixed(mean)}" for value, mean in found.means)
            rows.append((kind, f"`{found.field}`", f"{found.share:.0%}".replace("%", " %"), means))
    return table(("model", "field", "share of the variance", "mean R² on held-out masks, by value"), rows, left=2)


TABLES: dict[str, Callable[[], str]] = {
    "verdicts": lambda: verdicts([name for name in ("paper", "quick") if (HERE / name).is_dir()]),
    "scores-paper": lambda: scores("paper"),
    "scores-quick": lambda: scores("quick"),
    "first-seed-quick": lambda: first_seed("quick"),
    "masks-paper": lambda: masks("paper"),
    "masks-quick": lambda: masks("quick"),
    "active-modules-paper": lambda: active_modules("paper"),
    "active-modules-quick": lambda: active_modules("quick"),
    "modules-paper": lambda: modules("paper"),
    "modules-quick": lambda: modules("quick"),
    "interventions-paper": lambda: interventions("paper"),
    "interventions-quick": lambda: interventions("quick"),
    "length": length,
    "gap": gap,
    "diversity": diversity,
    "variation": variation,
    "teachers": teachers,
    "teachers-masks": teachers_masks,
    "selection": selection,
    "importance": importance,
    "readings": lambda: readings_table(study("quick"), sweep("readings"), sweep("variation"), sweep("gap")),
}
