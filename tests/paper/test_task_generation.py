"""Appendix C.1 (app:task_generation): y = aᵀσ(W(z)x), the teacher's and the inputs' distributions; from the file."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import erf

from recombine.cli.main import main
from recombine.task.episode import sample_control_episodes, sample_episode, sample_input
from recombine.task.teacher import Teacher, init_teacher, task_network


def labels_by_numpy(theta: np.ndarray, a: np.ndarray, z: np.ndarray, x: np.ndarray) -> np.ndarray:
    """One task, in float64: the norm by NumPy's SVD, the GELU by SciPy's error function."""
    W = sum(z_m * theta_m for z_m, theta_m in zip(z.astype(float), theta.astype(float), strict=True))
    W = W / np.linalg.svd(W, compute_uv=False)[0]
    u = x.astype(float) @ W.T
    return (u * (1 + erf(u / np.sqrt(2))) / 2) @ a.astype(float)


@pytest.mark.parametrize("split", ["train", "in_dist", "ood", "control", "control_modules"])
def test_labels_recomputed_from_the_sampled_file(tmp_path: Path, split: str) -> None:
    """Anyone can check the data without us: `recombine task sample`, then NumPy alone."""
    out = tmp_path / "episodes.npz"
    command = ["task", "sample", "--support", "connected+", "--split", split]
    assert main([*command, "--episodes", "40", "--length", "9", "--seed", "3", "--out", str(out)]) == 0
    with np.load(out) as data:
        arrays = dict(data)
    E, S, M, d, h, N = 40, 3 if split == "ood" else 12, 6, 16, 16, 9
    leading = (E,) if split.startswith("control") else ()
    shapes = {
        "about": (),
        "digest": (),
        "split": (E,),
        "masks": (S, M),
        "theta": (*leading, M, h, d),
        "a": (*leading, h),
        "mask_index": (E,),
        "latent": (E, M),
        "context_x": (E, N - 1, d),
        "context_y": (E, N - 1),
        "query_x": (E, d),
        "query_y": (E,),
    }
    assert {name: array.shape for name, array in arrays.items()} == shapes
    for i in range(E):
        theta, a = (
            (arrays["theta"][i], arrays["a"][i]) if split.startswith("control") else (arrays["theta"], arrays["a"])
        )
        x = np.vstack([arrays["context_x"][i], arrays["query_x"][i]])
        y = np.append(arrays["context_y"][i], arrays["query_y"][i])
        np.testing.assert_allclose(labels_by_numpy(theta, a, arrays["latent"][i], x), y, rtol=1e-4, atol=3e-6)
        np.testing.assert_array_equal(arrays["latent"][i] > 0, arrays["masks"][arrays["mask_index"][i]] == 1)


def test_the_control_shares_nothing_with_the_training_tasks(tmp_path: Path) -> None:
    """Appendix C.2 (app:random-control-task): a fresh teacher per episode; `control_modules` keeps the readout a."""
    files = {}
    for name, options in {
        "in_dist": ["--split", "in_dist"],
        "control": ["--split", "control"],
        "modules": ["--split", "control_modules"],
    }.items():
        assert main(["task", "sample", *options, "--episodes", "20", "--out", str(tmp_path / f"{name}.npz")]) == 0
        with np.load(tmp_path / f"{name}.npz") as data:
            files[name] = dict(data)
    thetas = np.concatenate([files["in_dist"]["theta"][None], files["control"]["theta"]]).reshape(21, -1)
    correlation = np.corrcoef(thetas)
    assert np.abs(correlation[~np.eye(21, dtype=bool)]).max() < 0.2
    assert len(np.unique(files["control"]["a"], axis=0)) == 20
    assert (files["modules"]["a"] == files["in_dist"]["a"]).all()
    assert len(np.unique(files["modules"]["theta"].reshape(20, -1), axis=0)) == 20


def test_the_same_command_writes_the_same_bytes(tmp_path: Path) -> None:
    """Also in another process."""
    paths = [tmp_path / "a.npz", tmp_path / "b.npz"]
    commands = [["task", "sample", "--episodes", "5", "--out", str(path)] for path in paths]
    assert main(commands[0]) == 0
    subprocess.run([sys.executable, "-m", "recombine", *commands[1]], check=True, capture_output=True)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_the_teachers_distribution() -> None:
    """Truncated normals of standard deviation 1/√M and 1/√h, cut at two of them."""
    M, h, d = 6, 16, 16
    teachers = [init_teacher(jax.random.key(seed), M, d, h) for seed in range(200)]
    for values, sigma, count in (
        (np.concatenate([np.ravel(t.theta) for t in teachers[:20]]), 1 / np.sqrt(M), 20 * M * h * d),
        (np.concatenate([np.ravel(t.a) for t in teachers]), 1 / np.sqrt(h), 200 * h),
    ):
        assert len(values) == count
        assert np.abs(values).max() <= 2 * sigma * (1 + 1e-6)
        assert stats.kstest(values, stats.truncnorm(-2, 2, scale=sigma).cdf).pvalue > 1e-4


def test_w_has_operator_norm_one() -> None:
    """ "we furthermore normalize the generated weight W by its operator norm", so the scale of z does not matter."""
    teacher = init_teacher(jax.random.key(0), 4, 7, 5)
    z = jnp.array([0.7, 0.0, 0.8, 0.0])
    W = np.asarray(teacher.task_weights(z))
    np.testing.assert_allclose(np.linalg.norm(W, 2), 1, rtol=1e-5)
    np.testing.assert_allclose(teacher.task_weights(3 * z), W, rtol=1e-5, atol=1e-6)


def test_inputs_are_uniform_with_unit_variance() -> None:
    """x ~ U(−√3, √3): mean 0, standard deviation 1."""
    x = np.ravel(sample_input(jax.random.key(0), (100, 500)))
    assert stats.kstest(x, stats.uniform(-np.sqrt(3), 2 * np.sqrt(3)).cdf).pvalue > 1e-4
    assert abs(x.std() - 1) < 0.01


def test_show_prints_what_table_1_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task", "show", "--support", "connected+", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert set(shown) == {"name", "masks", "held_out", "connected", "components"}
    assert (shown["name"], len(shown["masks"]), len(shown["held_out"])) == ("connected+", 12, 3)
    assert shown["connected"] is True
    assert main(["task", "show", "--support", "disconnected", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["connected"] is False
    assert len(shown["components"]) == 2


def test_the_same_labels_from_the_functions() -> None:
    """g(x, W), one episode, and a batch of the control, each against NumPy."""
    teacher = init_teacher(jax.random.key(5), 3, 4, 5)
    assert isinstance(teacher, Teacher)
    masks = jnp.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    W, x = np.asarray(teacher.task_weights(masks[0])), np.asarray(sample_input(jax.random.key(1), (7, 4)))
    expected = labels_by_numpy(np.asarray(teacher.theta), np.asarray(teacher.a), np.asarray(masks[0]), x)
    np.testing.assert_allclose(task_network(jnp.asarray(W), teacher.a, jnp.asarray(x)), expected, rtol=1e-4, atol=1e-6)

    one = sample_episode(jax.random.key(2), teacher, masks, 6)
    teachers, batch = sample_control_episodes(jax.random.key(3), teacher, masks, 6, 4)
    cases = [(teacher, one), *(jax.tree.map(lambda leaf, i=i: leaf[i], (teachers, batch)) for i in range(4))]
    for t, e in cases:
        inputs = np.vstack([e.context_x, e.query_x])
        expected = labels_by_numpy(np.asarray(t.theta), np.asarray(t.a), np.asarray(e.latent), inputs)
        np.testing.assert_allclose(np.append(e.context_y, e.query_y), expected, rtol=1e-4, atol=3e-6)
        assert e.context_x.shape == (5, 4)
