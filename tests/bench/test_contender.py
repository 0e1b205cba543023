"""Our contenders train on the given threads, and the limits multiply."""

from importlib import import_module

import numpy as np
import pytest

from recombine.bench import contender, matmul, ours
from recombine.bench.contender import CONTENDERS, LIMITS, PEERS, enter, enter_limits, limit_settings
from recombine.bench.race import race
from recombine.bench.setting import MatmulSetting, MissingRequirement, OurSetting, PeerSetting
from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.config.toml import override
from recombine.train import step
from recombine.train.loop import train

PAPER = preset_config("paper", "hypertransformer")
SMOKE = preset_config("smoke", "hypertransformer")


def our_setting(name: str, config: Config, threads: int) -> OurSetting:
    setting = enter(name, config, threads).setting
    assert isinstance(setting, OurSetting)
    return setting


@pytest.mark.parametrize("name", CONTENDERS)
def test_threads_and_devices(name: str) -> None:
    """The processes and devices of a contender have in all the threads that were asked for."""
    entry = enter(name, PAPER, threads=6)
    environment = entry.environment
    assert environment["NPROC"] == environment["OMP_NUM_THREADS"] == environment["OPENBLAS_NUM_THREADS"]
    threads = {"fast_single": 1, "fast_pair": 1}.get(name, 6)
    assert environment["NPROC"] == str(threads)
    assert entry.processes == (6 if name == "fast_pair" else 1)
    if name in PEERS:
        assert entry.setting == PeerSetting.from_config(PAPER)
        return
    setting = our_setting(name, PAPER, threads=6)
    assert (setting.threads, setting.devices) == (threads, 6 if name == "fast_sharded" else 1)
    assert setting.config == override(PAPER, {"compute": {"path": "plain" if name == "plain" else "fast"}})
    assert import_module(entry.module) is ours


def test_no_such_contender() -> None:
    with pytest.raises(ValueError, match="fats"):
        enter("fats", PAPER, threads=1)


def test_the_limits() -> None:
    assert contender.NUMBERS_AT_ONCE == step.NUMBERS_AT_ONCE
    settings = limit_settings(PAPER)
    assert tuple(settings) == tuple(entry.name for entry in enter_limits(settings, threads=2)) == LIMITS
    in_numpy, in_jax = settings.values()
    assert in_numpy == MatmulSetting("numpy", 2048, 2048, 2048, products=1)
    assert (in_jax.rows, in_jax.inner, in_jax.columns) == (2048, 64, 256)
    assert in_jax.flops == pytest.approx(contender.LEAST_FLOPS, rel=0.05)


@pytest.mark.parametrize("library", ["numpy", "jax"])
def test_products_keep_the_numbers_as_they_are(library: str) -> None:
    """A thousand products are timed on ordinary numbers."""
    stepper = matmul.make_stepper(MatmulSetting(library, rows=5, inner=8, columns=32, products=100))
    expected = np.random.default_rng(0).standard_normal((5, 8), np.float32)[0, 0]
    assert [stepper(1), stepper(10)] == pytest.approx([expected, expected], rel=1e-3)


@pytest.fixture
def _jax_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "prepare", lambda threads, devices: None)  # it must come before JAX starts


@pytest.mark.usefixtures("_jax_has_started")
@pytest.mark.parametrize("name", [pytest.param("plain", marks=pytest.mark.slow), "fast"])
def test_ours_is_the_training_loop(name: str) -> None:
    """Each call resumes where the last one stopped, as in `recombine train`."""
    stepper = ours.make_stepper(our_setting(name, SMOKE, threads=1))
    found = [stepper(1), stepper(2), stepper(1)]
    state, tasks = step.init_state(SMOKE), step.config_tasks(SMOKE)
    losses = np.concatenate([snapshot.losses for snapshot in train(SMOKE, tasks, state, 0, every=10, last=4)])
    # The bits are the same on the path of this configuration; the other path rounds differently.
    np.testing.assert_allclose(found, losses[[0, 2, 3]], rtol=0 if name == "fast" else 1e-4)


@pytest.mark.usefixtures("_jax_has_started")
def test_a_batch_that_cannot_be_shared() -> None:
    with pytest.raises(MissingRequirement, match="devices = 7"):
        ours.make_stepper(our_setting("fast_sharded", SMOKE, threads=7))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fast_sharded", "fast_pair"])
def test_ours_in_processes_of_their_own(name: str) -> None:
    """The benchmark starts our contenders with their threads and devices."""
    result = race([enter(name, SMOKE, threads=2)], steps=2, repeats=1)[name]
    assert result.out is None
    assert [len(answers) for answers in result.rounds] == [2 if name == "fast_pair" else 1]
