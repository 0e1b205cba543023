"""Teachers and episodes against NumPy, and variations of the paper's task."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf

from recombine.cli.main import main
from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.config.task import VARIATIONS, TaskConfig
from recombine.config.toml import config_tables, override, stored_config
from recombine.errors import InputError
from recombine.measure.novel import novel_tasks, score_novel
from recombine.measure.r2 import score
from recombine.measure.reference.baselines import predict_reference, ridge
from recombine.measure.reference.oracle import oracle
from recombine.support.masks import k_hot_masks
from recombine.support.split import EVAL_SPLITS, Split
from recombine.support.support import make_support, paper_support
from recombine.task.episode import sample_episodes
from recombine.task.evaluation import evaluation_episodes
from recombine.task.sample import mask_rows, sample_split
from recombine.task.teacher import HypernetworkTeacher, check_teacher, config_teacher, init_teacher, seed_teacher
from tests.reliability.small_run import compiled_programs

MASKS = k_hot_masks(3, 2)


def teacher(theta: np.ndarray, a: np.ndarray | None = None) -> HypernetworkTeacher:
    readout = np.ones(theta.shape[1], np.float32) if a is None else a
    return HypernetworkTeacher(jnp.asarray(theta, jnp.float32), jnp.asarray(readout))


def draw() -> np.ndarray:
    return np.array(init_teacher(jax.random.key(0), 3, 4, 5).theta)


def test_a_drawn_teacher_passes() -> None:
    check_teacher(teacher(draw()), MASKS)


def test_one_zero_module_passes_where_it_is_never_alone() -> None:
    theta = draw()
    theta[2] = 0
    check_teacher(teacher(theta), MASKS)
    with pytest.raises(InputError, match=r"the mask \(3\) are 0: W has operator norm 0"):
        check_teacher(teacher(theta), k_hot_masks(3, 1))


def test_episodes_of_a_bad_teacher_are_refused_not_nan() -> None:
    theta = draw()
    theta[1:] = 0
    support = make_support("mine", ["110", "011"])
    with pytest.raises(InputError, match="operator norm 0"):
        sample_split(0, "in_dist", teacher(theta), support, 4, 5)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_is_refused(value: float) -> None:
    theta = draw()
    theta[1, 2, 3] = value
    with pytest.raises(InputError, match=r"teacher\.theta.*finite"):
        check_teacher(teacher(theta), MASKS)
    with pytest.raises(InputError, match=r"teacher\.a.*finite"):
        check_teacher(teacher(draw(), np.full(5, value, np.float32)), MASKS)


def test_a_teacher_of_one_input_and_one_unit_works() -> None:
    """W(z) is then ±1, whatever z is."""
    support = make_support("mine", ["110", "011"])
    for seed in range(5):
        drawn = init_teacher(jax.random.key(seed), 3, 1, 1)
        _, episodes = sample_split(seed, "in_dist", drawn, support, 4, 50)
        assert np.isfinite(episodes.query_y).all()


SUPPORT = paper_support("connected+")
TEACHER = seed_teacher(0, SUPPORT, 5, 7)


def leaves(tree: object) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def test_a_shorter_batch_is_the_start_of_a_longer_one() -> None:
    masks = mask_rows(SUPPORT.masks).rows[: len(SUPPORT.masks)]
    long = sample_episodes(jax.random.key(1), TEACHER, masks, 6, 20)
    short = sample_episodes(jax.random.key(1), TEACHER, masks, 6, 8)
    for a, b in zip(leaves(long), leaves(short), strict=True):
        np.testing.assert_array_equal(a[:8], b)


@pytest.mark.parametrize("split", EVAL_SPLITS)
def test_latents_belong_to_the_masks_of_the_split(split: Split) -> None:
    _, episodes = sample_split(0, split, TEACHER, SUPPORT, 4, 300)
    masks = np.asarray(SUPPORT.masks_of(split))
    active = np.asarray(episodes.latent) > 0
    np.testing.assert_array_equal(active, masks[np.asarray(episodes.mask_index)] == 1)
    assert set(np.asarray(episodes.mask_index)) == set(range(len(masks)))


def test_splits_share_no_input() -> None:
    batches = [
        np.asarray(sample_split(0, split, TEACHER, SUPPORT, 4, 200)[1].query_x) for split in ("train", *EVAL_SPLITS)
    ]
    rows = np.concatenate(batches)
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_steps_and_seeds_share_no_input() -> None:
    batches = [
        np.asarray(sample_split(seed, "train", TEACHER, SUPPORT, 4, 50, step=step)[1].query_x)
        for seed in (0, 1)
        for step in (0, 1, 2)
    ]
    rows = np.concatenate(batches)
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_evaluation_episodes_are_the_same_every_time() -> None:
    for a, b in zip(*(leaves(sample_split(3, "ood", TEACHER, SUPPORT, 4, 10)) for _ in range(2)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("split", ["ood", "control"])
def test_in_pieces_one_program_serves_any_number_of_episodes(split: Split) -> None:
    whole = leaves(sample_split(2, split, TEACHER, SUPPORT, 4, 300)[1])
    sample_split(2, split, TEACHER, SUPPORT, 4, 7, in_pieces=True)
    with compiled_programs() as compiled:
        found = {
            count: leaves(sample_split(2, split, TEACHER, SUPPORT, 4, count, in_pieces=True)[1]) for count in (1, 300)
        }
    assert not compiled
    for count, arrays in found.items():
        for a, b in zip(arrays, whole, strict=True):
            np.testing.assert_allclose(a, b[:count], rtol=1e-5, atol=1e-6)


def gelu(u: np.ndarray) -> np.ndarray:
    return u * (1 + erf(u / np.sqrt(2))) / 2


ACTIVATIONS = {"gelu": gelu, "relu": lambda u: np.maximum(u, 0), "even": lambda u: gelu(u) + gelu(-u)}


def label(
    data: dict[str, np.ndarray], activation: str, scale: float, i: int, x: np.ndarray, unit_norm: bool
) -> np.ndarray:
    """The network of episode i, layer by layer, in float64."""
    u = x.astype(float)
    for theta in (data["theta"], *data.get("deeper", ())):
        W = np.tensordot(data["latent"][i].astype(float), theta.astype(float), axes=1)
        W = W / np.linalg.svd(W, compute_uv=False)[0] if unit_norm else W
        u = ACTIVATIONS[activation](u @ (scale * W).T)
    return u @ data["a"].astype(float)


def sample(out: Path, *options: str) -> dict[str, np.ndarray]:
    sizes = ["--episodes", "40", "--length", "9", "--input-dim", "5", "--hidden-dim", "6", "--seed", "3"]
    assert main(["task", "sample", *sizes, *options, "--out", str(out)]) == 0
    with np.load(out) as data:
        return dict(data)


@pytest.mark.parametrize(
    ("activation", "layers", "scale", "unit_norm"),
    [("even", 3, 2.5, True), ("relu", 1, 0.5, True), ("gelu", 2, 1.0, True), ("gelu", 1, 1.0, False)],
)
def test_labels_by_numpy(tmp_path: Path, activation: str, layers: int, scale: float, unit_norm: bool) -> None:
    fields = [f"task.activation={activation}", f"task.num_layers={layers}", f"task.weight_scale={scale}"]
    data = sample(tmp_path / "a.npz", "--set", *fields, f"task.unit_norm={str(unit_norm).lower()}")
    assert data.get("deeper", np.zeros((0, 6, 6, 6))).shape == (layers - 1, 6, 6, 6)
    for i in range(40):
        x = np.vstack([data["context_x"][i], data["query_x"][i]])
        y = np.append(data["context_y"][i], data["query_y"][i])
        np.testing.assert_allclose(label(data, activation, scale, i, x, unit_norm), y, rtol=1e-3, atol=1e-5)


def test_noise_is_on_the_contexts_labels_alone(tmp_path: Path) -> None:
    clean = sample(tmp_path / "a.npz", "--split", "ood")
    noisy = sample(tmp_path / "b.npz", "--split", "ood", "--set", "task.label_noise=0.3")
    for name in ("context_x", "query_x", "query_y", "latent", "theta", "a"):
        np.testing.assert_array_equal(clean[name], noisy[name])
    noise = noisy["context_y"] - clean["context_y"]
    assert noise.std() == pytest.approx(0.3, rel=0.15)
    assert abs(noise.mean()) < 0.06
    assert len(np.unique(noise)) == noise.size
    assert str(clean["digest"]) != str(noisy["digest"])
    assert json.loads(str(noisy["about"]))["task"]["label_noise"] == 0.3


def test_inputs(tmp_path: Path) -> None:
    drawn = {
        name: sample(tmp_path / f"{name}.npz", "--episodes", "400", "--set", f"task.input_distribution={name}")
        for name in ("uniform", "normal", "sphere")
    }
    x = {name: np.concatenate([data["context_x"].reshape(-1, 5), data["query_x"]]) for name, data in drawn.items()}
    for name, inputs in x.items():
        np.testing.assert_allclose(np.cov(inputs.T), np.eye(5), atol=0.1, err_msg=name)
    assert np.abs(x["uniform"]).max() <= np.sqrt(3) + 1e-6
    np.testing.assert_allclose(np.linalg.norm(x["sphere"], axis=1), np.sqrt(5), rtol=1e-5)
    assert np.mean(x["normal"] ** 4) == pytest.approx(3, rel=0.15)


def test_the_even_task_has_no_linear_part_and_more_to_recombine() -> None:
    """And the oracle still finds the latent."""
    shares = {}
    for activation in ("gelu", "even"):
        changes = {"task": {"activation": activation, "episode_length": 24}, "measure": {"episodes": 60}}
        config = override(preset_config("quick", "transformer"), changes)
        teacher = config_teacher(config)
        tasks = novel_tasks(config, teacher, 400)
        shares[activation] = score_novel(np.zeros(len(tasks.episodes.query_y)), tasks, tasks.span).share
    assert shares["even"] > 1.5 * shares["gelu"]
    teachers, episodes = evaluation_episodes(config, teacher, "ood")
    assert score(predict_reference(ridge, teachers, episodes, "ood"), episodes).r2 < 0
    assert score(predict_reference(oracle, teachers, episodes, "ood"), episodes).r2 > 0.99


def test_the_papers_task_is_stored_as_before() -> None:
    assert set(config_tables(Config())["task"]) == {"support", "input_dim", "hidden_dim", "episode_length"}
    changed = Config(TaskConfig(activation="even", label_noise=0.1))
    tables = config_tables(changed)["task"]
    assert set(VARIATIONS) & set(tables) == {"activation", "label_noise"}
    assert stored_config(config_tables(changed)) == changed


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("activation", "gelo"),
        ("num_layers", 0),
        ("weight_scale", 0.0),
        ("unit_norm", 1),
        ("label_noise", -0.1),
        ("label_noise", float("nan")),
        ("input_distribution", "gauss"),
    ],
)
def test_bad_values_are_refused(field: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"task\.{field}"):
        TaskConfig(**{field: value})


def test_only_fields_of_the_task_can_be_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task", "sample", "--set", "model.num_layers=3", "--out", str(tmp_path / "a.npz")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "a.npz").exists()
