"""The explorer's process outlives whatever it is asked."""

import asyncio
import json
import os
import signal

import numpy as np
import pytest

from recombine.cli.serve import demo_directory
from recombine.errors import InputError
from recombine.serve.explore.main import _answer, _warm
from recombine.serve.explore.process import ExplorerProcess
from recombine.serve.explore.scene import Task


class Broken:
    """A model of one's own that goes wrong, or gives what JSON cannot hold."""

    def __init__(self, gives: object):
        self.gives = gives

    def describe(self, path: object) -> object:
        if isinstance(self.gives, Exception):
            raise self.gives
        return self.gives

    warm = describe


@pytest.mark.parametrize("gives", [TypeError("only 15 examples"), RuntimeError("XLA"), float("nan"), object()])
def test_what_goes_wrong_is_told_to_who_asked(gives: object) -> None:
    answer = json.loads(_answer(Broken(gives), {"ask": "describe", "paths": ["a"]}))
    assert set(answer) == {"error"}
    if isinstance(gives, Exception):
        assert _warm(Broken(gives), []) is False
        assert str(gives) in answer["error"]


@pytest.mark.parametrize("least", [1e-46, 1e-40, 1e-300])
def test_a_weight_beyond_float32_is_still_a_weight(least: float) -> None:
    np.testing.assert_allclose(Task((least, 0.0, least), 4).latent, [0.75, 0.0, 0.75])
    np.testing.assert_allclose(Task((least, 0.0, 0.0), 4).latent, [1.0, 0.0, 0.0])


def test_a_process_that_was_killed_is_started_again() -> None:
    path = str(demo_directory() / "quick/hypertransformer-connected+-seed0")

    async def scenario() -> None:
        explorer = ExplorerProcess(share=1.0)
        try:
            (first,) = await explorer.ask({"ask": "describe", "paths": [path]})
            assert explorer.process is not None
            before = explorer.process.pid
            asked = asyncio.create_task(explorer.ask({"ask": "describe", "paths": [path]}))
            os.kill(before, signal.SIGKILL)
            try:
                await asked
            except InputError as error:
                assert "their process has ended" in str(error)
            (again,) = await explorer.ask({"ask": "describe", "paths": [path]})
            assert again == first
            assert explorer.process.pid != before
        finally:
            await explorer.end()

    asyncio.run(scenario())
