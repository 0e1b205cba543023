"""The explorer's process survives every question."""

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from recombine.config.schema import Config, custom_model, custom_task
from recombine.config.task import TaskConfig
from recombine.errors import InputError
from recombine.record.codec import decode, encode
from recombine.serve.explorer.exchange import ComposedTask, Descriptions, Question, Refusal
from recombine.serve.explorer.explorer import Explorer, _numbers
from recombine.serve.explorer.main import answer_line, compile_ahead
from recombine.serve.explorer.process import ExplorerProcess, Refused
from recombine.serve.explorer.scene import task_latent
from recombine.serve.query import asked_classes
from recombine.storage.demo import demo_directory
from tests.serve.server import demo_run


class Broken(Explorer):
    """A custom model that fails, or returns something that JSON cannot store."""

    def __init__(self, gives: object):
        super().__init__()
        self.gives = gives

    def describe(self, path: Path) -> Any:
        if isinstance(self.gives, Exception):
            raise self.gives
        return self.gives

    def compile_ahead(self, paths: Sequence[Path]) -> Any:
        return self.describe(Path())


def ask(explorer: Explorer, line: str) -> Refusal:
    return decode(answer_line(explorer, line)[1], Refusal)


@pytest.mark.parametrize(
    "gives", [TypeError("only 15 examples"), RuntimeError("XLA"), InputError("a", 1, "b"), object()]
)
def test_an_error_is_told_to_the_client(gives: object) -> None:
    error = ask(Broken(gives), encode(Question(paths=(b"a",)))).error
    assert error
    if isinstance(gives, Exception):
        assert compile_ahead(Broken(gives), []) is False
        assert str(gives) in error


NO_MODULE = '{"paths": [], "task": {"weights": [0], "length": 1}}'


@pytest.mark.parametrize("line", ["", "{", "[]", '{"paths": 3}', NO_MODULE])
def test_a_question_that_cannot_be_read(line: str) -> None:
    assert "the question cannot be read" in str(ask(Explorer(), line).error)


def test_a_question_is_the_same_after_the_way() -> None:
    """A path may contain any bytes."""
    question = Question(
        paths=(b"/runs/\xff\n", b"/runs/b"),
        custom=("module:Class",),
        custom_tasks=("module:Task",),
        task=ComposedTask((1.0, 0.0, 0.5), 8, fresh=3),
        latents=(None, "true", (1.0, -2.5)),
    )
    assert decode(encode(question), Question) == question
    assert os.fsencode(question.run_paths()[0]) == question.paths[0]


def test_a_class_is_imported_only_where_the_command_names_it() -> None:
    run: Any = SimpleNamespace(name="a", config=Config(task=TaskConfig(kind="waves:Waves")))
    assert asked_classes("task", [run], custom_task, (None, "waves:Waves")) == ("waves:Waves",)
    assert asked_classes("model", [run], custom_model, ()) == ()
    with pytest.raises(InputError, match="--task waves:Waves"):
        asked_classes("task", [run], custom_task, (None,))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e9])
def test_a_latent_that_json_cannot_hold_is_not_sent(value: float) -> None:
    with pytest.raises(InputError, match=r"^latent = "):
        Question(paths=(b"a",), latents=(None, (1.0, value)))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_prediction_that_json_cannot_hold_is_an_error(value: float) -> None:
    with pytest.raises(ArithmeticError, match="not finite"):
        _numbers(np.asarray([1.0, value]))


def test_an_answer_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(self: ExplorerProcess, question: Question) -> bytes:
        return b'{"models": [null]}'

    monkeypatch.setattr(ExplorerProcess, "_ask", answer)
    with pytest.raises(Refused, match="cannot be read"):
        asyncio.run(ExplorerProcess(share=1.0, root=Path()).ask(Question(paths=(b"a",)), Descriptions))


@pytest.mark.parametrize("least", [1e-46, 1e-40, 1e-300])
def test_a_weight_beyond_float32_is_still_a_weight(least: float) -> None:
    np.testing.assert_allclose(task_latent(ComposedTask((least, 0.0, least), 4)), [0.75, 0.0, 0.75])
    np.testing.assert_allclose(task_latent(ComposedTask((least, 0.0, 0.0), 4)), [1.0, 0.0, 0.0])


def test_a_process_that_was_killed_is_started_again() -> None:
    path = demo_run("quick/hypertransformer-connected+-seed0")
    question = Question(paths=(os.fsencode(path),))

    async def scenario() -> None:
        explorer = ExplorerProcess(share=1.0, root=demo_directory())
        try:
            first = await explorer.ask(question, Descriptions)
            assert explorer.process is not None
            before = explorer.process.pid
            asked = asyncio.create_task(explorer.ask(question, Descriptions))
            os.kill(before, signal.SIGKILL)
            try:
                await asked
            except InputError as error:
                assert "their process has ended" in str(error)
            again = await explorer.ask(question, Descriptions)
            assert again == first
            assert explorer.process.pid != before
        finally:
            await explorer.end()

    asyncio.run(scenario())
