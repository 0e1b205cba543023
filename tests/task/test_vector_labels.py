"""Labels with several outputs: the teacher and the episodes against NumPy, and numbers of outputs that are refused."""

from pathlib import Path

import jax
import numpy as np
import pytest
from scipy.special import erf

from recombine.cli.main import main
from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.config.toml import config_tables, override, stored_config
from recombine.task.sample import sample_split
from recombine.task.teacher import config_teacher, init_teacher


def vector_config(kind: str = "transformer", **task) -> Config:
    return override(preset_config("smoke", kind), {"task": {"output_dim": 3} | task})


@pytest.mark.parametrize("num_layers", [1, 2])
def test_vector_labels_against_numpy(num_layers: int) -> None:
    """y = A σ(W(z) x) with A of o × h, whose entries have the standard deviation of the paper's a."""
    config = vector_config(num_layers=num_layers)
    drawn = config_teacher(config)
    _, episodes = sample_split(0, "in_dist", drawn, config.task.support, 6, 20)
    assert (episodes.context_y.shape, episodes.query_y.shape) == ((20, 5, 3), (20, 3))
    modules = [np.asarray(drawn.theta, float), *(() if drawn.deeper is None else np.asarray(drawn.deeper, float))]
    for z, x, y in zip(episodes.latent, episodes.context_x, episodes.context_y, strict=True):
        hidden = np.asarray(x, float)
        for theta in modules:
            W = np.einsum("m,mhk->hk", z, theta)
            u = hidden @ (W / np.linalg.svd(W, compute_uv=False)[0]).T
            hidden = u * (1 + erf(u / np.sqrt(2))) / 2
        np.testing.assert_allclose(y, hidden @ np.asarray(drawn.a, float).T, rtol=1e-4, atol=1e-5)
    a = init_teacher(jax.random.key(0), 2, 2, 500, label_shape=(40,)).a
    assert a.shape == (40, 500)
    assert np.std(a) == pytest.approx(0.8796 / np.sqrt(500), rel=0.02)  # cut at two standard deviations


def test_every_output_has_its_own_noise_and_the_query_has_none() -> None:
    quiet, noisy = (vector_config(label_noise=noise) for noise in (0.0, 0.5))
    _, true = sample_split(0, "in_dist", config_teacher(quiet), quiet.task.support, 20, 300)
    _, shown = sample_split(0, "in_dist", config_teacher(noisy), noisy.task.support, 20, 300)
    np.testing.assert_array_equal(true.query_y, shown.query_y)
    noise = np.asarray(shown.context_y - true.context_y, float).reshape(-1, 3)
    np.testing.assert_allclose(np.cov(noise.T), 0.25 * np.eye(3), atol=0.015)


def test_controls_have_vector_labels_too() -> None:
    config = vector_config()
    drawn = config_teacher(config)
    fresh, episodes = sample_split(0, "control_modules", drawn, config.task.support, 6, 4)
    np.testing.assert_array_equal(fresh.a, np.stack([drawn.a] * 4))
    assert not np.array_equal(fresh.theta[0], fresh.theta[1])
    assert episodes.query_y.shape == (4, 3)


def test_the_extra_pair_of_vector_labels() -> None:
    config = vector_config(input_dim=6)
    _, batch = sample_split(0, "in_dist", config_teacher(config), config.task.support, 5, 4)
    for episodes in (batch, jax.tree.map(lambda array: array[0], batch)):  # a batch, and one episode
        pairs = episodes.query_x.ndim - 1
        _, y, _ = episodes.shown("query")
        np.testing.assert_array_equal(np.take(np.asarray(y), -1, axis=pairs), episodes.query_y)
        _, y, _ = episodes.shown("latent")
        np.testing.assert_array_equal(np.take(np.asarray(y), 0, axis=pairs), np.zeros(3) + 0 * episodes.query_y)
        np.testing.assert_array_equal(np.take(np.asarray(y), [1, 2, 3, 4], axis=pairs), episodes.context_y)


def test_one_output_is_stored_as_ever() -> None:
    assert "output_dim" not in config_tables(override(Config(), {"task": {"output_dim": 1}}))["task"]
    config = vector_config()
    assert stored_config(config_tables(config)).task.output_dim == 3


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "1000000000", "65", "a", "nan", "true", "[3]"])
@pytest.mark.parametrize("command", [["train", "--preset", "smoke"], ["task", "sample"]])
def test_bad_numbers_of_outputs(
    command: list[str], value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.npz" if command[0] == "task" else tmp_path / "out"
    assert main([*command, "--out", str(out), "--set", f"task.output_dim={value}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "task.output_dim" in line
    assert "an integer from 1 to 64" in line
    assert not list(tmp_path.iterdir())
