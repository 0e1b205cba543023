"""Synthetic studies with known numbers, to test reports without training."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from math import exp
from pathlib import Path
from typing import Any

import msgspec

from recombine import paper
from recombine.config.model import CustomModelConfig, HypertransformerConfig, ModelConfig, TransformerConfig
from recombine.config.schema import Config, MeasureConfig, OptimizerConfig
from recombine.config.task import TaskConfig
from recombine.measure.scorecard import Scorecard
from recombine.record.codec import convert
from recombine.record.novel import MaskNovel, pool_novel
from recombine.record.reference import References
from recombine.record.run_state import Identity, Status
from recombine.record.score import MetricsRow
from recombine.storage.reader import StoredRun
from recombine.study.collect import Study
from recombine.support.support import make_support

ALL_PAIRS = ["".join("1" if m in pair else "0" for m in range(6)) for pair in combinations(range(6), 2)]
FINAL = {  # R² at the end: in distribution, held out, held out when trained on disconnected, control, fresh modules
    "transformer": (0.93, 0.72, 0.68, 0.42, 0.45),
    "hypertransformer": (0.98, 0.95, 0.35, -2.5, -0.8),
    "informed": (0.97, 0.8, 0.7, 0.3, 0.3),
}
NOVEL = {"transformer": 0.1, "hypertransformer": 0.75}  # R² on the novel part at the end
REFERENCES = {
    "context_mean": 0.0, "nearest_neighbours": 0.35, "ridge": 0.61, "fitted_network": 0.66, "oracle": 0.995,
    "known_latent": 1.0,
}  # fmt: skip


def score(r2: float, spread: float = 0.5) -> dict[str, Any]:
    return {"r2": r2, "nmse": 1 - r2, "r2_variance": None, "mse": spread * (1 - r2)}


def split_of(r2: float, masks: Sequence[str], seed: int) -> dict[str, Any]:
    """Masks of different sizes, spreads and R², and the split's R², pooled over their episodes."""
    rows = {}
    for i, mask in enumerate(masks):
        n, spread = 1000 + 300 * i, 0.4 + 0.02 * i
        one = min(1.0, r2 - 0.015 * ((7 * i + seed) % 5 - 2))  # R² above 1 is refused
        rows[mask] = {"episodes": n, "r2": one, "mse": spread * (1 - one), "spread": spread}
    total = sum(row["episodes"] for row in rows.values())
    mse = sum(row["episodes"] * row["mse"] for row in rows.values()) / total
    spread = sum(row["episodes"] * row["spread"] for row in rows.values()) / total
    return {**score(1 - mse / spread), "mse": mse, "masks": rows}


def novel_of(r2: float, masks: Sequence[str], seed: int) -> dict[str, Any]:
    """Masks of different sizes, and the whole, pooled over their contexts."""
    rows = {}
    for i, mask in enumerate(masks):
        one, novel = r2 - 0.02 * ((5 * i + seed) % 4), 0.03 + 0.002 * i
        rows[mask] = {
            "contexts": 20 + i, "variance": 0.4, "novel": novel, "predicted": 0.8 * one * novel,
            "novel_error": (1 - one) * novel, "error": 0.05 + (1 - one) * novel,
        }  # fmt: skip
    pooled = pool_novel(convert(rows, dict[str, MaskNovel]), rows)
    assert pooled is not None
    return {**pooled._asdict(), "slope_error": 0.01, "r2_error": 0.02, "directions": 16, "masks": rows}


MADE = Identity(
    recombine="0.1.0", jax="0", jaxlib="0", numpy="0", optax="0", equinox="0", x64=False, platform="cpu", device="one",
    devices=1, threads=1, xla_flags="",
)  # fmt: skip


def make_row(model: str, support: str, seed: int, step: int, progress: float) -> MetricsRow:
    in_dist, ood, broken, control, modules = FINAL.get(model, (0.9, 0.85, 0.6, 0.2, 0.25))
    trained = paper.SUPPORTS.get(support, paper.SUPPORTS["connected+"])
    grown = 1 - exp(-5 * progress)
    shift = 0.015 * (seed - 1)

    def value(final: float) -> float:
        return -0.1 + (final + shift + 0.1) * grown

    row: dict[str, Any] = {"step": step, "loss": None if step == 0 else 0.5 * (1 - value(in_dist))}
    row["in_dist"] = split_of(value(in_dist), trained, seed)
    if held_out := [mask for mask in ALL_PAIRS if mask not in trained]:
        final = broken if support == "disconnected" else ood
        row["ood"] = split_of(value(final) if step else -40.0, held_out, seed)
        row["novel"] = {"ood": novel_of(value(NOVEL.get(model, 0.3)) if step else -40.0, held_out, seed)}
    row["control"], row["control_modules"] = score(value(control)), score(value(modules))
    latent = {"in_dist": value(0.95), "ood": value(0.9)} if model == "hypertransformer" else None
    row["probe"] = {"in_dist": [0.1, value(0.8), value(0.9)], "ood": [0.1, value(0.75), value(0.85)], "latent": latent}
    if model not in FINAL:
        row["probe"] = None  # a custom model without a trace
    return convert(row, MetricsRow)


def explicit_of(trained: Sequence[str], held_out: Sequence[str], seed: int) -> dict[str, Any]:
    """A hypertransformer's scores after explicit inference."""
    found: dict[str, Any] = {"in_dist": split_of(0.99, trained, seed), "by_step": [0.8, 0.9, 0.97, 0.98]}
    if held_out:
        found["ood"] = split_of(0.98, held_out, seed)
        found["novel"] = novel_of(0.97, held_out, seed)
    return found | {"control": score(-0.05), "control_modules": score(0.02), "active_modules": {"1": score(0.9)}}


def make_scorecard(model: str, support: str, seed: int, steps: int) -> Scorecard:
    in_dist, ood, *_ = FINAL.get(model, (0.9, 0.85))
    shift = 0.01 * seed
    counts = {str(k): score(ood - 0.05 * abs(k - 2) + shift) for k in range(1, 7)}
    trained = paper.SUPPORTS.get(support, paper.SUPPORTS["connected+"])
    card: dict[str, Any] = {"step": steps, "num_parameters": 100_000, "active_modules": counts}
    if held_out := [mask for mask in ALL_PAIRS if mask not in trained]:  # not the value of the last row
        card["novel"] = {"ood": novel_of(NOVEL.get(model, 0.3) - 0.04 + shift, held_out, seed)}
    card["modules"] = card["interventions"] = None
    if model == "hypertransformer":
        single = [
            {
                "module": m,
                "mask": f"{1 << (6 - m):06b}",
                "trained": False,
                "r2": 0.8 + 0.02 * m - shift,
                "ceiling": 0.97,
            }
            for m in range(1, 7)
        ]
        pairs = [
            {"mask": mask, "trained": mask in trained, "r2": 0.9 - 0.01 * i - shift, "ceiling": 0.99}
            for i, mask in enumerate(ALL_PAIRS)
        ]
        card["modules"] = {"map_r2": 0.95, "single": single, "pairs": pairs}
        values = {"inferred": in_dist, "true": 0.99, "wrong": -0.9 + shift, "interpolated": 0.6, "ceiling": 0.97}
        card["interventions"] = {"kind": "latent", "in_dist": values, "ood": {**values, "inferred": ood}}
        card["explicit_inference"] = {"steps": 3, "own": explicit_of(trained, held_out, seed)}
    elif model in FINAL:
        points = []
        for point in range(3):
            values = {
                "none": in_dist,
                "true": in_dist + 0.01 * point,
                "wrong": 0.8 - 0.3 * point,
                "random": 0.85 + shift,
            }
            points.append({"point": point, "in_dist": values, "ood": {**values, "none": ood}})
        card["interventions"] = {"kind": "subspace", "points": points}
    return convert(card, Scorecard)


def model_config(model: str) -> ModelConfig:
    match model:
        case "transformer":
            return TransformerConfig()
        case "informed":
            return TransformerConfig(given_latent=True)
        case "hypertransformer":
            return HypertransformerConfig()
    return CustomModelConfig(f"mine:{model}")


def make_run(
    model: str, support: str, seed: int, *, steps: int = 5000, snapshots: int = 41, done: float = 1.0, path: str = ""
) -> StoredRun:
    """A run that is measured at equal distances, up to the fraction `done` of its steps."""
    marks = [round(i * steps / (snapshots - 1)) for i in range(snapshots)]
    rows = tuple(make_row(model, support, seed, step, step / steps) for step in marks if step <= done * steps)
    finished = done >= 1
    references = {
        name: {split: score(r2) for split in ("in_dist", "ood", "control", "control_modules")}
        | {"active_modules": {str(k): score(r2 - 0.02 * k) for k in range(1, 7)}}
        for name, r2 in REFERENCES.items()
    }
    masks = paper.SUPPORTS.get(support, paper.SUPPORTS["connected+"])
    config = Config(
        task=TaskConfig(make_support(support, masks)),
        model=model_config(model),
        optimizer=OptimizerConfig(num_steps=steps),
        measure=MeasureConfig(snapshots=snapshots - 1),
        seed=seed,
    )
    return StoredRun(
        path=Path(path or f"runs/{model}-{support}-{seed}"),
        config=config,
        rows=rows,
        status=Status("done" if finished else "running", rows[-1].step if rows else 0, steps),
        scorecard=make_scorecard(model, support, seed, steps) if finished else None,
        references=convert(references, References) if rows else None,
        made=MADE,
    )


def whole_study(models: Sequence[str] = ("transformer", "hypertransformer"), seeds: int = 3) -> Study:
    """A complete study like that of `reproduce`: models × supports × seeds, all done."""
    return Study(
        tuple(
            make_run(m, s, i) for m in models for s in ("connected+", "connected", "disconnected") for i in range(seeds)
        )
    )


def half_study() -> Study:
    """One seed, one support: one run half-way, one that has not measured anything yet."""
    return Study(
        (make_run("transformer", "connected+", 0, done=0.5), make_run("hypertransformer", "connected+", 0, done=-1))
    )


def custom_study() -> Study:
    """A custom model beside the paper's, two seeds."""
    return Study(tuple(make_run(m, "connected+", i) for m in ("transformer", "Bottleneck") for i in range(2)))


HOSTILE = "</script><script>document.title='owned'</script>\"'&🦜\u2028{x}"


def hostile_study() -> Study:
    """A study with names that would be executed as code if they were not escaped."""
    return Study(
        tuple(
            make_run(model, f"s{HOSTILE}", i, path=f"runs/{HOSTILE[:9]}-{i}")
            for model in ("Bottleneck",)
            for i in (0, 1)
        )
    )


def with_score(row: MetricsRow, split: str, **changes: float) -> MetricsRow:
    """The row, with a split's score changed."""
    score = row.split(split)
    assert score is not None
    return msgspec.structs.replace(row, **{split: msgspec.structs.replace(score, **changes)})


def with_reference(run: StoredRun, name: str, split: str, r2: float) -> StoredRun:
    """The run, with a reference's R² on a split changed."""
    assert run.references is not None
    known = run.references[name]
    score = known.split(split)
    assert score is not None
    changed = msgspec.structs.replace(known, **{split: msgspec.structs.replace(score, r2=r2)})
    return replace(run, references=run.references | {name: changed})
