import os

import jax
import pytest

from recombine.run.machine import prepare


def test_compiled_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flag is added once to the user's own flags, and a level that the user has set is kept."""
    jax.devices()  # so that nothing else is prepared
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    for _ in range(2):
        prepare(compile_quickly=True)
        assert os.environ["XLA_FLAGS"] == "--xla_cpu_enable_fast_math=false --xla_backend_optimization_level=0"
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=2")
    prepare(compile_quickly=True)
    assert os.environ["XLA_FLAGS"] == "--xla_backend_optimization_level=2"
