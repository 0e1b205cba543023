"""The explorer's process outlives whatever it is asked."""

import json

import numpy as np
import pytest

from recombine.serve.scene import Task
from recombine.serve.worker import _answer, _warm


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
