"""The numbers in the docs are those of the runs in evidence/."""

import importlib
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from statistics import fmean
from types import ModuleType

import numpy as np
import pytest
from safetensors.numpy import load
from scipy.stats import norm
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score

from recombine.config.preset import preset_config
from recombine.measure.predict import forward_episodes
from recombine.measure.ridge import Ridge
from recombine.run.load import load_model
from recombine.stream import Stream
from recombine.task.sample import sample_masks
from recombine.task.teacher import config_teacher, seed_teacher

ROOT = Path(__file__).parents[1]
EVIDENCE = ROOT / "evidence"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(str(EVIDENCE / "scripts"))
    return importlib.import_module


def test_the_docs_are_what_the_runs_say() -> None:
    command = [sys.executable, "evidence/scripts/docs.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_a_figure_of_other_numbers_is_another(script: Callable[[str], ModuleType]) -> None:
    docs, alt = script("docs"), script("altair")

    def digest(value: float) -> str:
        one = alt.Chart(alt.Data(values=[{"a": value}])).mark_bar().encode(x="a:Q").add_params(alt.param())
        return docs.digest(alt.concat(one, one.add_params(alt.selection_interval())))

    assert digest(0.5) == digest(0.5 + 1e-9), "though Altair counts parameters on, and names views by all digits"
    assert digest(0.5) != digest(0.501)


def members(study: str, pattern: str) -> list[bytes]:
    """The files of a study's archives whose names match, by the standard library alone."""
    found = {}
    for path in EVIDENCE.glob(f"{study}/*.zip"):
        with zipfile.ZipFile(path) as archive:
            found |= {name: archive.read(name) for name in archive.namelist() if fnmatch(name, pattern)}
    assert found, f"no {pattern} in {study}"
    return [found[name] for name in sorted(found)]


def last_rows(study: str, runs: str) -> list[dict]:
    return [json.loads(text.splitlines()[-1]) for text in members(study, f"{runs}/metrics.jsonl")]


def measured(name: str) -> list[dict]:
    return json.loads((EVIDENCE / "measured.json").read_text())[name]


def test_a_table_against_the_files(script: Callable[[str], ModuleType]) -> None:
    """Some cells, computed here directly from the files."""
    tables = script("docs")
    text = tables.TABLES["scores-quick"]()
    for model in ("transformer", "hypertransformer"):
        held_out = [row["ood"]["r2"] for row in last_rows("quick", f"{model}-connected+-seed?")]
        half = 4.302652729911275 * np.std(held_out, ddof=1) / np.sqrt(3)
        low, high = np.mean(held_out) - half, np.mean(held_out) + half
        assert f"| {np.mean(held_out):.3f} [{low:.3f}, {high:.3f}] |" in text
    cards = [json.loads(card) for card in members("quick", "hypertransformer-connected+-seed?/scorecard.json")]
    true = np.mean([card["interventions"]["ood"]["true"] for card in cards])
    assert f"latent | true | 0.996 [0.993, 0.998] | {true:.3f} [" in tables.TABLES["interventions-quick"]()


def test_a_mask_has_its_score_in_its_model_s_column(script: Callable[[str], ModuleType]) -> None:
    """The mean over seeds is right even if one model has more seeds than the other."""
    text = script("docs").TABLES["masks-paper"]()
    cells = next(line for line in text.splitlines() if line.startswith("| `disconnected` | `100001` |")).split("|")
    for cell, model in zip(cells[3:], ("transformer", "hypertransformer"), strict=False):
        scores = [row["ood"]["masks"]["100001"]["r2"] for row in last_rows("paper", f"{model}-disconnected-seed?")]
        assert cell.split()[0] == f"{fmean(scores):.3f}"


def test_panel_d_seed_by_seed_against_the_files(script: Callable[[str], ModuleType]) -> None:
    text = script("docs").TABLES["panel-d-paper"]()
    rows = {
        tuple(cells[:2]): cells[2:] for cells in ([c.strip() for c in r.split("|")[1:-1]] for r in text.splitlines())
    }
    for seed in range(3):
        for support in ("connected", "disconnected"):
            run = f"hypertransformer-{support}-seed{seed}"
            (metrics,), (card,) = members("paper", f"{run}/metrics.jsonl"), members("paper", f"{run}/scorecard.json")
            (known,) = members("paper", f"references/{support}-N32-seed{seed}-*.json")
            steps = [json.loads(line) for line in metrics.splitlines()]
            true = json.loads(card)["interventions"]["ood"]["true"]
            ridge = json.loads(known)["scores"]["ridge"]["ood"]["r2"]
            cells = rows[str(seed), f"`{support}`"]
            best = max(step["ood"]["r2"] for step in steps)
            shown = (cells[0], *cells[3:6])
            assert shown == tuple(f"{value:.3f}" for value in (ridge, steps[-1]["ood"]["r2"], best, true))


def test_the_picture_of_held_out_masks_against_the_files(script: Callable[[str], ModuleType]) -> None:
    chart = script("figures").held_out().to_dict()
    drawn = []
    for panel in chart["concat"]:
        data = panel["layer"][0]["data"]  # the numbers beside the points have data of their own
        rows = chart["datasets"][data["name"]] if "name" in data else data["values"]
        names = {row["row"] for row in rows}
        drawn.append({name: sorted(row["R²"] for row in rows if row["row"] == name) for name in names})
    whole, novel = drawn
    explicit = []
    for model in ("transformer", "hypertransformer"):
        assert whole[model] == sorted(row["ood"]["r2"] for row in last_rows("paper", f"{model}-connected+-seed?"))
        cards = [json.loads(card) for card in members("paper", f"{model}-connected+-seed?/scorecard.json")]
        assert novel[model] == sorted(card["novel"]["ood"]["r2"] for card in cards if card.get("novel"))
        explicit += [card["explicit_inference"]["own"] for card in cards if card.get("explicit_inference")]
    assert whole["hypertransformer, explicit inference"] == sorted(own["ood"]["r2"] for own in explicit)
    assert novel["hypertransformer, explicit inference"] == sorted(own["novel"]["r2"] for own in explicit)
    known = [json.loads(text)["scores"] for text in members("paper", "references/connected+-*.json")]
    blends = [scores["trained_covariance"] for scores in known]
    assert whole["blend of trained tasks"] == sorted(scores["ood"]["r2"] for scores in blends)
    assert novel["blend of trained tasks"] == sorted(s["novel"]["ood"]["r2"] for s in blends if "novel" in s)


def test_the_findings_against_the_files(script: Callable[[str], ModuleType]) -> None:
    tables = script("docs").TABLES
    text = " ".join(f"{tables['findings']()} {tables['explicit-steps']()}".replace("−", "-").split())
    cards = [json.loads(card) for card in members("paper", "hypertransformer-connected+-seed?/scorecard.json")]
    own = [card["explicit_inference"]["own"] for card in cards if card.get("explicit_inference")]
    plain = [json.loads(card) for card in members("paper", "transformer-connected+-seed?/scorecard.json")]
    for values, digits in (
        ([row["ood"]["r2"] for row in last_rows("paper", "transformer-connected+-seed?")], 3),
        ([card["novel"]["ood"]["r2"] for card in plain if card.get("novel")], 3),
        ([card["novel"]["ood"]["r2"] for card in cards if card.get("novel")], 3),
        ([card["interventions"]["ood"]["true"] for card in cards], 4),
        ([one["ood"]["r2"] for one in own], 4),
        ([one["novel"]["r2"] for one in own], 3),
        ([one["control_modules"]["r2"] for one in own], 3),
    ):
        seeds = r"(?!\d)" if len(values) == len(cards) else rf" \({len(values)} seed"  # as many as there are: not said
        assert re.search(rf"{fmean(values):.{digits}f}{seeds}".replace(".", r"\."), text)


def crossed(rng: np.random.Generator, teacher: float, seed: float, rest: float) -> list[list[float]]:
    """Scores of four teachers with the same three seeds each, with known effects of teacher and seed."""
    rows, columns = rng.normal(0, teacher, (4, 1)), rng.normal(0, seed, (1, 3))
    return (rows + columns + rng.normal(0, rest, (4, 3))).tolist()


@pytest.mark.parametrize("seed", [0.0, 1.0])
def test_variance_of_teachers_and_of_seeds(script: Callable[[str], ModuleType], seed: float) -> None:
    """Against a simulation whose variances are known."""
    variation = script("variation")
    rng = np.random.default_rng(0)
    among, within = np.mean([variation.components(crossed(rng, 2.0, seed, 0.5)) for _ in range(4000)], axis=0)
    assert among == pytest.approx(4.0, rel=0.05)
    assert within == pytest.approx(seed**2 + 0.25, rel=0.05)
    assert variation.components([[1.0, 3.0], [3.0, 1.0]])[0] == 0.0


@pytest.mark.parametrize(("seed", "share"), [(0.0, 0.8), (0.5, 2 / 3), (2.0, 1 / 5.25)])
def test_the_interval_of_a_share(script: Callable[[str], ModuleType], seed: float, share: float) -> None:
    """The interval contains the true share in at least about 95 % of simulations."""
    variation = script("variation")
    rng = np.random.default_rng(1)
    ends = [variation.share_interval(crossed(rng, 1.0, seed, 0.5), draws=2000) for _ in range(2000)]
    held = sum(low <= share <= high for low, high in ends) / len(ends)
    assert 0.94 < held < 0.99, held


def test_what_is_decoded(script: Callable[[str], ModuleType]) -> None:
    """Decoding the latent gives R² = 1. Decoding only the mask gives 0.947 (docs/claims.md), and 0 within masks."""
    rng = np.random.default_rng(0)
    masks = rng.integers(0, 3, 20_000)
    active = np.eye(6, dtype=bool)[np.stack([masks, masks + 3], axis=1)].any(axis=1)
    share = rng.uniform(0.5, 1.0, len(masks))
    z = np.zeros((len(masks), 6))
    z[np.arange(len(masks)), masks], z[np.arange(len(masks)), masks + 3] = share, 1.5 - share
    as_it_is = Ridge(np.eye(6), np.zeros(6))
    told = script("inside").told
    assert told(as_it_is, z, z, masks) == pytest.approx({"all": 1.0, "within": 1.0, "mask": 1.0})
    of_masks = told(as_it_is, np.where(active, 0.75, 0.0), z, masks)
    assert of_masks["all"] == pytest.approx(0.947, abs=2e-3)
    assert of_masks["within"] == pytest.approx(0.0, abs=1e-9)
    assert told(as_it_is, np.roll(z, 1, axis=1), z, masks)["mask"] == 0.0


def test_what_scripts_found_is_of_these_runs(script: Callable[[str], ModuleType]) -> None:
    """Numbers that are also in the runs' own files agree with them."""
    found = {name: measured(name) for name in ("covariance", "decoding", "execution")}
    for row in found["covariance"]:
        (text,) = members(row["study"], f"references/connected+-*-seed{row['seed']}-*.json")
        known = json.loads(text)["scores"]["trained_covariance"]
        if row["noise"] != known.get("noise", 0.01):
            continue
        assert [row["in_dist"], row["ood"]] == pytest.approx([known["in_dist"]["r2"], known["ood"]["r2"]], abs=1e-6)
    for row in found["decoding"]:
        (last,) = last_rows(row["study"], f"{row['model']}-connected+-seed{row['seed']}")
        known = (
            last["probe"]["latent"][row["split"]]
            if row["place"] == "inferred latent"
            else last["probe"][row["split"]][-1]
        )
        assert row["all"] == pytest.approx(known, abs=2e-3)
    for study in ("quick", "paper"):
        seeds = {row["seed"] for row in found["covariance"] if row["study"] == study}
        assert seeds <= {run.seed for run in script("records").study(study).runs if run.finished}
        assert f"`{study}`" in script("docs").TABLES["covariance"]()
    for name in ("decoding", "execution"):
        assert {("quick", 0), ("paper", 0), ("paper", 1), ("paper", 2)} <= {
            (r["study"], r["seed"]) for r in found[name]
        }
    for row in found["execution"]:
        (card,) = members(row["study"], f"hypertransformer-connected+-seed{row['seed']}/scorecard.json")
        assert row["inferred"] == pytest.approx(json.loads(card)["active_modules"][str(row["k"])]["r2"], abs=1e-4)


@pytest.mark.parametrize("study", ["paper", "quick"])
def test_execution_with_the_true_latent(study: str) -> None:
    """All six modules at once, in NumPy from the parameters' file: W = Σ ẑ θ̂ with ẑ the image of the true latent."""
    run = "hypertransformer-connected+-seed0"
    config, model, _ = load_model(EVIDENCE / study / "seed0.zip" / run)
    teacher = config_teacher(config)
    theta, a = np.asarray(teacher.theta, np.float64), np.asarray(teacher.a, np.float64)

    def scaled(z: np.ndarray) -> np.ndarray:
        W = np.einsum("em,mhd->ehd", z, theta)
        return z / np.linalg.norm(W, ord=2, axis=(1, 2))[:, None]

    def network(W: np.ndarray, readout: np.ndarray, x: np.ndarray) -> np.ndarray:
        hidden = np.einsum("ehd,ed->eh", W, x)
        return (hidden * norm.cdf(hidden)) @ readout

    task = config.task
    fit = sample_masks(config.seed, Stream.probe, teacher, task.support.masks, task.episode_length, 4_000)
    inferred = np.asarray(forward_episodes(config, model, fit).latent, np.float64)
    design = np.column_stack([scaled(np.asarray(fit.latent, np.float64)), np.ones(len(inferred))])
    to_inferred = np.linalg.lstsq(design, inferred, rcond=None)[0]
    rng = np.random.default_rng(0)
    parts = rng.exponential(size=(4_000, 6))
    v = scaled(0.5 * (parts / parts.sum(axis=1, keepdims=True) + 1))
    x = rng.uniform(-(3**0.5), 3**0.5, (len(v), task.input_dim))
    truth = network(np.einsum("em,mhd->ehd", v, theta), a, x)
    (file,) = members(study, f"{run}/model.safetensors")
    weights = load(file)
    modules, readout, bias = (
        np.asarray(weights[name], np.float64) for name in ("theta", "readout.weight", "readout.bias")
    )
    code = np.column_stack([v, np.ones(len(v))]) @ to_inferred
    found = network(np.einsum("em,mhd->ehd", code, modules), readout.ravel(), x) + bias
    (known,) = [row for row in measured("execution") if (row["study"], row["seed"], row["k"]) == (study, 0, 6)]
    assert 1 - np.sum((truth - found) ** 2) / np.sum((truth - truth.mean()) ** 2) == pytest.approx(
        known["true"], abs=0.01
    )


def test_the_other_readings_change_what_they_say(script: Callable[[str], ModuleType]) -> None:
    readings, records = script("readings"), script("records")
    base = [run for run in records.study("quick").runs if run.model in readings.MODELS]
    found = dict(readings.alternatives(base, (), (), ()))
    for name, split, read in (
        ("R² by the contexts' variances", "ood", lambda row: row.ood.r2_variance),
        ("control: a fresh teacher", "control_modules", lambda row: row.control.r2),
    ):
        assert [run.rows[-1].r2(split) for run in found[name]] == [read(run.rows[-1]) for run in base]


def test_how_linear_tasks_are(script: Callable[[str], ModuleType]) -> None:
    """Against scikit-learn, and the stored numbers against the teacher of one seed."""
    linearity, rng = script("linearity"), np.random.default_rng(0)
    features = rng.normal(size=(200, 5))
    labels = features @ rng.normal(size=(5, 3)) + rng.normal(size=(200, 3)) + 2
    fit = LinearRegression().fit(features, labels)
    expected = r2_score(labels, fit.predict(features), multioutput="variance_weighted")
    assert linearity.explained(features, labels) == pytest.approx(expected)
    task = preset_config("quick", "transformer").task
    teacher = seed_teacher(0, task.support, task.input_dim, task.hidden_dim)
    found = np.mean([linearity.shares(teacher, mask, 0) for mask in np.asarray(task.support.held_out)], axis=0)
    rows = measured("linearity")
    (row,) = [row for row in rows if (row["study"], row["seed"], row["split"]) == ("quick", 0, "ood")]
    assert found == pytest.approx([row["linear"], row["added"]], abs=1e-4)
