"""The contenders are what they are said to be: our training, on the threads given, and products that can be timed."""

from dataclasses import asdict
from importlib import import_module

import numpy as np
import pytest

from recombine.bench import contender, matmul
from recombine.bench import ours as own
from recombine.bench.contender import CONTENDERS, LIMITS, PEERS, enter, enter_limits
from recombine.bench.peer.job import Job, Missing
from recombine.bench.race import race
from recombine.config.preset import preset_config
from recombine.train import step
from recombine.train.loop import train

PAPER = preset_config("paper", "hypertransformer")
SMOKE = preset_config("smoke", "hypertransformer")


@pytest.mark.parametrize("name", CONTENDERS)
def test_threads_and_devices(name: str) -> None:
    """As many threads in all as were asked for, however they are shared out."""
    entry = enter(name, PAPER, threads=6)
    environment = entry.environment
    assert environment["NPROC"] == environment["OMP_NUM_THREADS"] == environment["OPENBLAS_NUM_THREADS"]
    threads = {"fast_single": 1, "fast_pair": 1}.get(name, 6)
    assert environment["NPROC"] == str(threads)
    assert entry.processes == (6 if name == "fast_pair" else 1)
    if name in PEERS:
        assert Job(**entry.job) == Job.from_config(PAPER)
        return
    job = own.Job(**entry.job)
    assert (job.threads, job.devices) == (threads, 6 if name == "fast_sharded" else 1)
    assert job.config["compute"]["path"] == ("plain" if name == "plain" else "fast")
    assert import_module(entry.module) is own


def test_no_such_contender() -> None:
    with pytest.raises(ValueError, match="fats"):
        enter("fats", PAPER, threads=1)


def test_the_limits() -> None:
    assert contender.NUMBERS_AT_ONCE == step.NUMBERS_AT_ONCE
    entries = enter_limits(PAPER, threads=2)
    assert tuple(entry.name for entry in entries) == LIMITS
    numpy_job, jax_job = (matmul.Job(**entry.job) for entry in entries)
    assert (numpy_job.rows, numpy_job.inner, numpy_job.columns, numpy_job.products) == (2048, 2048, 2048, 1)
    assert (jax_job.rows, jax_job.inner, jax_job.columns) == (2048, 64, 256)
    assert jax_job.flops == pytest.approx(contender.LEAST_FLOPS, rel=0.05)


@pytest.mark.parametrize("library", ["numpy", "jax"])
def test_products_keep_the_numbers_as_they_are(library: str) -> None:
    """So that a thousand of them are timed on ordinary numbers."""
    stepper = matmul.make_stepper(matmul.Job(library, rows=5, inner=8, columns=32, products=100))
    expected = np.random.default_rng(0).standard_normal((5, 8), np.float32)[0, 0]
    assert [stepper(1), stepper(10)] == pytest.approx([expected, expected], rel=1e-3)


@pytest.fixture
def _jax_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "prepare", lambda threads, devices: None)  # here it has; in a worker it has not


@pytest.mark.usefixtures("_jax_has_started")
@pytest.mark.parametrize("name", [pytest.param("plain", marks=pytest.mark.slow), "fast"])
def test_ours_is_the_training_loop(name: str) -> None:
    """Call after call goes on where the last one stopped, as in `recombine train`."""
    job = own.Job(**enter(name, SMOKE, threads=1).job)
    stepper = own.make_stepper(job)
    found = [stepper(1), stepper(2), stepper(1)]
    state, tasks = step.init_state(SMOKE), step.config_tasks(SMOKE)
    losses = np.concatenate([snapshot.losses for snapshot in train(SMOKE, tasks, state, 0, every=10, last=4)])
    # The same bits on the path that this configuration has; the other path rounds otherwise.
    np.testing.assert_allclose(found, losses[[0, 2, 3]], rtol=0 if name == "fast" else 1e-4)


@pytest.mark.usefixtures("_jax_has_started")
def test_a_batch_that_cannot_be_shared() -> None:
    job = enter("fast_sharded", SMOKE, threads=7).job
    with pytest.raises(Missing, match="devices = 7"):
        own.make_stepper(own.Job(**job))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fast_sharded", "fast_pair"])
def test_ours_in_processes_of_their_own(name: str) -> None:
    """As the benchmark starts them, with the threads and devices that they are given there."""
    result = race([enter(name, SMOKE, threads=2)], steps=2, repeats=1)[name]
    assert result.failed is None
    assert result.missing is None
    assert [len(answers) for answers in result.rounds] == [2 if name == "fast_pair" else 1]


def test_a_job_survives_json() -> None:
    fields = asdict(Job.from_config(PAPER))
    listed = {**fields, "masks": [list(mask) for mask in fields["masks"]]}
    assert Job(**listed) == Job.from_config(PAPER)
    assert isinstance(hash(Job(**listed)), int)
