"""The peers draw episodes by the paper's law."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from msgspec.structs import replace
from scipy import special

from recombine.bench.setting import PeerSetting
from tests.bench.test_peers import tiny_config


def sample_torch(setting: PeerSetting) -> tuple[Any, Any]:
    torch, task = import_module("torch"), import_module("recombine.bench.peer.torch_task")
    torch.manual_seed(setting.seed)
    teacher = task.init_teacher(setting)
    return teacher, task.sample_episodes(setting, teacher, torch.tensor(setting.masks, dtype=torch.float32))


def sample_jax(setting: PeerSetting) -> tuple[Any, Any]:
    task = import_module("recombine.bench.peer.jax_task")

    @jax.jit
    def sample() -> tuple[Any, Any]:
        teacher_key, data_key = jax.random.split(jax.random.key(setting.seed))
        teacher = task.init_teacher(teacher_key, setting)
        return teacher, task.sample_episodes(data_key, setting, teacher, jnp.array(setting.masks, jnp.float32))

    return sample()


@pytest.mark.parametrize(("package", "sample"), [("torch", sample_torch), ("jax", sample_jax)])
def test_episodes(package: str, sample: Callable[[PeerSetting], tuple[Any, Any]]) -> None:
    """The drawn labels equal the paper's formula in float64, applied to the drawn latents, teacher and inputs."""
    pytest.importorskip(package)
    setting = replace(
        PeerSetting.from_config(tiny_config("transformer")), batch_size=2_000, hidden_dim=24, input_dim=16
    )
    drawn = [[np.asarray(value) for value in part] for part in sample(setting)]
    assert {value.dtype for part in drawn for value in part} == {np.dtype(np.float32)}
    (theta, a), episodes = ([value.astype(np.float64) for value in part] for part in drawn)
    context_x, context_y, query_x, query_y, z = episodes
    x, y = np.concatenate([context_x, query_x[:, None]], 1), np.concatenate([context_y, query_y[:, None]], 1)
    assert x.shape == (2_000, 8, 16)

    W = np.tensordot(z, theta, 1)
    W = W / np.linalg.norm(W, ord=2, axis=(1, 2), keepdims=True)
    u = np.einsum("bhd,bnd->bnh", W, x)
    np.testing.assert_allclose(y, (u * (1 + special.erf(u / np.sqrt(2))) / 2) @ a, rtol=1e-4, atol=1e-5)

    masks, count = np.unique(z > 0, axis=0, return_counts=True)
    assert {tuple(mask) for mask in masks.astype(int).tolist()} == set(setting.masks)
    assert count.min() > 0.5 * 2_000 / len(setting.masks)
    simplex = 2 * z - (z > 0)
    np.testing.assert_allclose(simplex.sum(axis=1), 1, rtol=1e-5)
    on_mask = simplex[z > 0]  # uniform for masks of two modules
    np.testing.assert_allclose(np.quantile(on_mask, [0.05, 0.5, 0.95]), [0.05, 0.5, 0.95], atol=0.03)
    np.testing.assert_allclose(np.quantile(x, [0, 0.25, 1]), [-np.sqrt(3), -np.sqrt(3) / 2, np.sqrt(3)], atol=0.02)
    for entries, scale in ((theta, np.sqrt(setting.num_modules)), (a, np.sqrt(setting.hidden_dim))):
        assert np.abs(entries * scale).max() <= 2 + 1e-6
    np.testing.assert_allclose((theta * np.sqrt(setting.num_modules)).std(), 0.88, atol=0.04)
