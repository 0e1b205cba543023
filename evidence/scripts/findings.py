"""The findings in words, and their tables: the novel part, and explicit inference. Every number is from the runs."""

from collections.abc import Callable, Iterable
from statistics import fmean
from textwrap import fill

from records import MAIN, H, T, chosen, final_r2, study
from studies import true_latent_r2

from recombine import paper
from recombine.measure.latent.explicit_inference import ExplicitInference, StartScores
from recombine.record.novel import NovelScore
from recombine.storage.reader import StoredRun
from recombine.study.panel_d_masks import novel_outside_both
from recombine.study.series import final_novel
from recombine.study.wording import fixed, number, percent, with_band
from recombine.terminal.markdown import table

PAIRS = (MAIN, "connected", "disconnected")
ALL = str(paper.NUM_MODULES)


def found(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def said(values: Iterable[float | None], exact: bool = False) -> str:
    """The mean, and the seeds that it is of: '0.889 (3 seeds)'. Four decimals if it is `exact` or close to 1."""
    known = found(values)
    if not known:
        return "–"
    mean = f"{fmean(known):.4f}" if exact or fmean(known) > 0.999 else fixed(fmean(known))
    return f"{mean} ({len(known)} seed{'s' if len(known) > 1 else ''})"


def mean(values: Iterable[float | None]) -> str:
    return said(values).partition(" (")[0]


def runs_of(name: str, model: str, support: str = MAIN) -> list[StoredRun]:
    return [run for run in chosen(study(name).runs, model) if run.support == support and run.finished]


def novel_r2(run: StoredRun) -> float | None:
    score = final_novel(run)
    return None if score is None else score.r2


def reference_novel(run: StoredRun, name: str) -> float | None:
    known = (run.references or {}).get(name)
    return None if known is None or known.novel is None else known.novel.ood.r2


def explicit(run: StoredRun) -> ExplicitInference | None:
    return None if run.scorecard is None else run.scorecard.explicit_inference


def own(run: StoredRun) -> StartScores | None:
    scores = explicit(run)
    return None if scores is None else scores.own


def explicit_r2(run: StoredRun, split: str = "ood") -> float | None:
    scores = own(run)
    score = None if scores is None else getattr(scores, split)
    return None if score is None else score.r2


def explicit_start_r2(run: StoredRun) -> float | None:
    """R² before the first step, on the same episodes."""
    scores = own(run)
    return None if scores is None else scores.by_step[0]


def fresh_modules(run: StoredRun) -> float | None:
    return None if explicit(run) is None else final_r2(run, "control_modules")


def explicit_fresh_modules(run: StoredRun) -> float | None:
    return explicit_r2(run, "control_modules")


def six_modules(run: StoredRun) -> float | None:
    """R² of tasks that combine all modules."""
    card = run.scorecard
    return None if card is None or card.explicit_inference is None else card.active_modules[ALL].r2


def explicit_six_modules(run: StoredRun) -> float | None:
    scores = own(run)
    return None if scores is None else scores.active_modules[ALL].r2


def explicit_novel(run: StoredRun) -> float | None:
    scores = own(run)
    return None if scores is None or scores.novel is None else scores.novel.r2


def explicit_outside(run: StoredRun) -> float | None:
    scores = own(run)
    score = None if scores is None else novel_outside_both(scores.novel)
    return None if score is None else score.r2


def novel_outside(run: StoredRun) -> float | None:
    """R² on the novel part of the masks outside both supports of panel D."""
    score = final_novel(run)
    both = None if score is None else novel_outside_both(score)
    return None if both is None else both.r2


def findings() -> str:
    """Three bullets for the README, at the paper's settings."""
    plain, hyper = runs_of("paper", T), runs_of("paper", H)

    def told(values: Iterable[float | None], exact: bool = False) -> str:
        """A mean, with its seeds only where they are not those of all hypertransformers."""
        return said(values, exact).removesuffix(f" ({len(hyper)} seeds)")

    share = percent(fmean(found(score.share if (score := final_novel(run)) else None for run in hyper)))
    whole_plain, whole = (told(final_r2(run, "ood") for run in runs) for runs in (plain, hyper))
    practised_plain, practised = (mean(final_r2(run, "in_dist") for run in runs) for runs in (plain, hyper))
    novel_plain, novel = (told(map(novel_r2, runs)) for runs in (plain, hyper))
    true = told(map(true_latent_r2, hyper), exact=True)
    measured = [run for run in hyper if explicit(run)]
    improved, fresh = (told(map(of, measured)) for of in (explicit_r2, explicit_fresh_modules))
    alone, together = (told(map(of, measured)) for of in (six_modules, explicit_six_modules))
    improved_novel = told(map(explicit_novel, measured))
    connected, disconnected = (told(map(explicit_outside, runs_of("paper", H, support))) for support in PAIRS[1:])
    bullets = (
        f"""**R² of whole tasks hides whether a model recombines.** On held-out pairs the paper's two models score
        alike: R² is {whole_plain} for the transformer and {whole} for the hypertransformer (on trained pairs,
        {practised_plain} and {practised}). But the novel part has only {share} of the variance. On it R² is
        {novel_plain} for the transformer and {novel} for the hypertransformer.""",
        f"""**The modules recombine, but the inferred latent is imprecise.** Given the true z, mapped to its latent by
        an affine map fitted on trained pairs, the hypertransformer solves held-out pairs: R² {true}.""",
        f"""**Explicit inference repairs this without further training.** Three steps raise R² to {improved}, and on the
        novel part to {improved_novel}. Though trained on pairs only, the models then also solve tasks of all six
        modules: R² rises from {alone} to {together}. Fresh modules stay unsolved: R² {fresh}. Trained on
        only six of fifteen pairs, models reach {connected} on the novel part if the six connect all modules, and
        {disconnected} if not.""",
    )
    return "\n".join(
        fill(" ".join(one.split()), 118, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False)
        for one in bullets
    )


def steps_table() -> str:
    """What three steps of explicit inference change, at the paper's settings."""
    hyper = runs_of("paper", H)
    connected, disconnected = (runs_of("paper", H, support) for support in PAIRS[1:])
    rows = (
        ("held-out combinations", hyper, explicit_start_r2, explicit_r2),
        ("their novel part", hyper, novel_r2, explicit_novel),
        ("tasks of all six modules, after training on pairs", hyper, six_modules, explicit_six_modules),
        ("fresh modules, which the model cannot know", hyper, fresh_modules, explicit_fresh_modules),
        ("novel part, after training on the six pairs of `connected`", connected, novel_outside, explicit_outside),
        (
            "novel part, after training on the six pairs of `disconnected`",
            disconnected,
            novel_outside,
            explicit_outside,
        ),
    )
    head = ("R² of the hypertransformer on", "as trained", "with three steps")
    return table(head, [(words, said(map(a, runs)), said(map(b, runs))) for words, runs, a, b in rows], left=1)


def novel_table(name: str) -> str:
    """The novel part of every model and support, with explicit inference beside it."""
    rows = []
    for support in PAIRS:
        for model in (T, H):
            runs = runs_of(name, model, support)
            scores = found_scores(runs)
            rows.append((f"`{support}`", model, *_novel_cells(runs, scores, outside=support != MAIN)))
            if model == H and any(own(run) for run in runs):
                improved = [one.novel for run in runs if (one := own(run)) and one.novel]
                pooled = found(map(explicit_r2, runs))
                cells = _cells(pooled, improved, outside=support != MAIN)
                rows.append(("", "with explicit inference", *cells))
    head = ("trained on", "model", "seeds", "R² held out", "novel share", "novel R²", "slope", "error inside the span")
    return table((*head, "novel R², outside both"), rows, left=2)


def found_scores(runs: Iterable[StoredRun]) -> list[NovelScore]:
    return [score for run in runs if (score := final_novel(run))]


def _novel_cells(runs: list[StoredRun], scores: list[NovelScore], outside: bool) -> tuple[str, ...]:
    measured = [run for run in runs if final_novel(run)]
    return _cells([final_r2(run, "ood") for run in measured], scores, outside)


def _cells(pooled: list[float], scores: list[NovelScore], outside: bool) -> tuple[str, ...]:
    parts: tuple[Callable[[NovelScore], float], ...] = (
        lambda score: score.share,
        lambda score: score.r2,
        lambda score: score.slope,
        lambda score: score.span_error,
    )
    beyond = found(both.r2 if (both := novel_outside_both(score)) else None for score in scores) if outside else []
    return (
        str(len(scores)),
        with_band(pooled),
        *(with_band([part(score) for score in scores]) for part in parts),
        with_band(beyond),
    )


def explicit_table(name: str) -> str:
    """Held-out R² after each step of explicit inference, from the model's own latent and from zero."""
    rows = []
    for support in PAIRS:
        runs = [run for run in runs_of(name, H, support) if explicit(run)]
        for start, words in (("own", "its own latent"), ("zero", "zero")):
            scores = [one for run in runs if (card := explicit(run)) and (one := getattr(card, start))]
            if scores:
                steps = zip(*(one.by_step for one in scores), strict=True)
                control = [one.control.r2 for one in scores]
                fresh = found(one.control_modules.r2 if one.control_modules else None for one in scores)
                cells = (*map(_near_one, steps), with_band(control), with_band(fresh))
                rows.append((f"`{support}`", words, str(len(scores)), *cells))
    head = (
        "trained on",
        "start",
        "seeds",
        "0 steps",
        "1 step",
        "2 steps",
        "3 steps",
        "control, 3 steps",
        "fresh modules, 3 steps",
    )
    return table(head, rows, left=2)


def _near_one(values: Iterable[float]) -> str:
    mean = fmean(values)
    return f"{mean:.4f}" if mean > 0.99 else number(mean)
