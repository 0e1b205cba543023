"""PyTorch and Flax models take our examination: the same scores, the same steps, the same bits after a resume.

Neither framework is needed to run the other tests, so these are skipped where it is not installed.
"""

import re
import shlex
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from msgspec import structs

import recombine as rc
from recombine.cli.main import main
from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.config.toml import override
from recombine.errors import InputError
from recombine.measure.predict import predict
from recombine.measure.snapshot import measure_snapshot
from recombine.model.build import count_parameters
from recombine.model.custom import check_custom, import_model
from recombine.model.interface import Output, Trace
from recombine.record.codec import plain
from recombine.run.load import load_model
from recombine.serve.explorer.exchange import ComposedTask
from recombine.serve.explorer.explorer import Explorer
from recombine.task.sample import sample_split
from recombine.task.teacher import config_teacher
from recombine.train.loop import train
from recombine.train.step import config_tasks, init_state
from tests.reliability.small_run import finish, result

PAGE = (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text(encoding="utf-8")
EXAMPLES = dict(zip(("my_torch", "my_flax"), re.findall(r"^```python\n(.*?)^```$", PAGE, re.S | re.M), strict=True))
COMMANDS = re.findall(r"^recombine .*$", PAGE, re.M)

TORCH = """
import torch
from torch import nn

class Twin(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.hidden = nn.Linear(config.task.input_dim + 2, 8)
        self.table = nn.Parameter(torch.ones(2, 2))
        self.out = nn.Linear(8, 1)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, context_x, context_y, query_x):
        if self.training:
            self.calls += 1
        both = torch.stack([context_y.mean(1), context_y.std(1, correction=0)], dim=1) @ self.table
        return self.out(torch.tanh(self.hidden(torch.cat([both, query_x], dim=1))))[:, 0]

class Outputs(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.read = nn.Linear(config.task.output_dim, config.task.output_dim)

    def forward(self, context_x, context_y, query_x):
        return self.read(context_y.mean(1))

class Number(Outputs):
    def forward(self, *inputs):
        return super().forward(*inputs).sum(1)

class Whole(Twin):
    def forward(self, *inputs):
        return super().forward(*inputs) - super().forward(*inputs).mean()

class Column(Twin):
    def forward(self, *inputs):
        return super().forward(*inputs)[:, None]

class Double(Twin):
    def __init__(self, config):
        super().__init__(config)
        self.double()

class Draws(Twin):
    def forward(self, *inputs):
        return super().forward(*inputs) + torch.rand(len(inputs[0]))

class Constant(Twin):
    def forward(self, *inputs):
        return 0 * super().forward(*inputs)

class Two(Twin):
    def forward(self, context_x, context_y):
        return context_y.mean(1)
"""

FLAX = """
import jax
from flax import nnx

class Normed(nnx.Module):
    def __init__(self, config, *, rngs):
        self.norm = nnx.BatchNorm(config.task.input_dim, rngs=rngs)

    def __call__(self, context_x, context_y, query_x):
        return self.norm(query_x).sum()

class Outputs(nnx.Module):
    def __init__(self, config, *, rngs):
        self.read = nnx.Linear(config.task.output_dim, config.task.output_dim, rngs=rngs)

    def __call__(self, context_x, context_y, query_x):
        return self.read(context_y.mean(axis=0))

class Number(Outputs):
    def __call__(self, *inputs):
        return super().__call__(*inputs).sum()

class Features(nnx.Module):
    def __init__(self, config, *, rngs):
        self.fixed = nnx.Variable(jax.random.normal(rngs.params(), (config.task.input_dim,)))
        self.scale = nnx.Param(jax.numpy.ones(()))

    def __call__(self, context_x, context_y, query_x):
        return self.scale * (self.fixed[...] @ query_x)

class NoRngs(nnx.Module):
    def __init__(self, config):
        pass
"""


class Twin(eqx.Module):
    """The same network as the PyTorch one."""

    hidden: jax.Array
    hidden_bias: jax.Array
    table: jax.Array
    out: jax.Array
    out_bias: jax.Array

    def __call__(self, context_x: jax.Array, context_y: jax.Array, query_x: jax.Array) -> Output:
        both = jnp.stack([context_y.mean(), context_y.std()]) @ self.table
        hidden = jnp.tanh(self.hidden @ jnp.concatenate([both, query_x]) + self.hidden_bias)
        return Output((self.out @ hidden + self.out_bias)[0], Trace())


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    for name, text in {**EXAMPLES, "bad_torch": TORCH, "bad_flax": FLAX}.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def own_config(kind: str, **options) -> Config:
    import_model(kind)
    changes = {"model": {"options": options}, "optimizer": {"num_steps": 12, "clip_norm": 0.1, "weight_decay": 0.3}}
    return override(preset_config("smoke", kind), changes)


def twins(config: Config) -> tuple:
    torch_model = init_state(config).model
    arrays = torch_model.parameters
    names = ("hidden.weight", "hidden.bias", "table", "out.weight", "out.bias")
    return torch_model, Twin(*(arrays[name] for name in names))


def test_the_same_weights_have_the_same_scores(here: Path) -> None:
    pytest.importorskip("torch")
    config = own_config("bad_torch:Twin")
    torch_model, equinox_model = twins(config)
    assert count_parameters(torch_model) == count_parameters(equinox_model) == 8 * 6 + 8 + 4 + 8 + 1
    teacher = config_teacher(config)
    found, expected = (plain(measure_snapshot(config, model, teacher, 0)) for model in (torch_model, equinox_model))
    for split in ("in_dist", "ood", "control", "control_modules"):
        assert found[split]["r2"] == pytest.approx(expected[split]["r2"], abs=1e-5)
    assert found["novel"]["ood"]["r2"] == pytest.approx(expected["novel"]["ood"]["r2"], abs=1e-5)


def test_the_same_weights_take_the_same_steps(here: Path) -> None:
    """Clipped and decayed, over the whole schedule: PyTorch's step is ours, on the same episodes."""
    pytest.importorskip("torch")
    from recombine.train.optimizer import make_optimizer
    from recombine.train.step import State
    from recombine.train.torch_step import step_inputs

    config = own_config("bad_torch:Twin")
    tasks, state = config_tasks(config), init_state(config)
    drawn = step_inputs(config, jnp.asarray(0, jnp.uint32), tasks, jnp.asarray(3)).episodes
    _, ours = sample_split(0, "train", tasks.teacher, config.task.support, config.task.episode_length, 16, step=3)
    for name in ("context_x", "context_y", "query_x", "query_y"):
        np.testing.assert_array_equal(getattr(drawn, name), getattr(ours, name))
    _, twin = twins(config)
    twin_state = State(twin, make_optimizer(config.optimizer).init(eqx.filter(twin, eqx.is_inexact_array)))
    *_, torch_last = train(config, tasks, state, 0, 12)
    *_, jax_last = train(config, tasks, twin_state, 0, 12)
    np.testing.assert_allclose(torch_last.losses[-1], jax_last.losses[-1], rtol=1e-4)
    found = torch_last.state.model.parameters
    assert not np.allclose(found["hidden.weight"], state.model.parameters["hidden.weight"], atol=1e-3)
    np.testing.assert_allclose(found["hidden.weight"], jax_last.state.model.hidden, atol=2e-5)
    np.testing.assert_allclose(found["out.bias"], jax_last.state.model.out_bias, atol=2e-5)
    np.testing.assert_allclose(found["table"], jax_last.state.model.table, atol=2e-5)
    assert torch_last.state.model.buffers["calls"] == 12


@pytest.mark.parametrize("kind", ["my_torch:Encoder", "my_flax:Mean"])
def test_a_resumed_run_has_the_same_bits(here: Path, kind: str) -> None:
    """With dropout, whose random numbers are those of the step."""
    pytest.importorskip(kind.partition(":")[0].removeprefix("my_"))
    config = own_config(kind, width=4)
    finish(here / "whole", config)
    for stop in (5, 7, 12):
        finish(here / "parts", config, stop_at=stop)
    assert result(here / "parts") == result(here / "whole")


@pytest.mark.parametrize("framework", ["torch", "flax"])
def test_the_examples_run_as_printed(here: Path, capsys: pytest.CaptureFixture[str], framework: str) -> None:
    """Trained, examined, reported, and served by the explorer."""
    pytest.importorskip(framework)
    commands = [shlex.split(line)[1:] for line in COMMANDS if f"my_{framework}:" in line]
    assert len(commands) == 2
    for command in commands:
        assert main(command) == 0
    run, kind = commands[1][1:4:2][0], commands[1][3]
    assert kind.partition(":")[2] in capsys.readouterr().out
    config, model, step = load_model(Path(run))
    answer = Explorer().explore([Path(run)], ComposedTask((0.5, 0.5, 0, 0, 0, 0), 7))
    assert len(answer.models[0].y) > 1
    assert np.isfinite(answer.models[0].y).all()
    row = measure_snapshot(config, model, config_teacher(config), step)
    assert rc.load(run, kind).rows[-1].ood == structs.replace(row.ood)


def test_modules_that_were_built_elsewhere_are_examined(here: Path) -> None:
    torch = pytest.importorskip("torch")
    config = own_config("bad_torch:Twin")
    module = sys.modules["bad_torch"].Twin(config)
    found = rc.examine(module, config, full=False).scores
    episodes = rc.sample(config, "in_dist")
    with torch.no_grad():
        y = module.eval()(*(torch.from_numpy(np.array(array)) for array in episodes.batch.shown()))
    np.testing.assert_allclose(rc.predict(module, episodes).y, y.numpy(), atol=1e-6)
    assert -10 < found.in_dist.r2 < 1


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("bad_torch:Whole", "depends on the other episodes"),
        ("bad_torch:Column", "its y has shape (3, 1)"),
        ("bad_torch:Double", "float64"),
        ("bad_torch:Draws", "computes different numbers"),
        ("bad_torch:Constant", "every gradient is 0"),
        ("bad_torch:Two", "cannot be called"),
        ("bad_flax:Normed", "BatchStat"),
        ("bad_flax:Features", "fixed is drawn at random"),
        ("bad_flax:NoRngs", "Class(config, rngs=rngs)"),
    ],
)
def test_a_wrong_class_is_one_line(here: Path, capsys: pytest.CaptureFixture[str], kind: str, complaint: str) -> None:
    pytest.importorskip(kind.partition(":")[0].removeprefix("bad_"))
    assert main(["train", "--model", kind, "--preset", "smoke", "--out", "run"]) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert kind in said or "float64" in said
    assert said.count("\n") == 1
    assert not Path("run").exists()


@pytest.mark.parametrize("framework", ["torch", "flax"])
def test_vector_labels(here: Path, framework: str) -> None:
    """A class that predicts a vector passes the checks and is trained; one that predicts a number is refused."""
    pytest.importorskip(framework)
    config = override(own_config(f"bad_{framework}:Outputs"), {"task": {"output_dim": 3}})
    check_custom(config)
    *_, last = train(config, config_tasks(config), init_state(config), 0, 12)
    teacher = config_teacher(config)
    _, episodes = sample_split(0, "ood", teacher, config.task.support, config.task.episode_length, 5)
    assert predict(last.state.model, episodes).shape == (5, 3)
    assert np.isfinite(measure_snapshot(config, last.state.model, teacher, 12).in_dist.r2)
    with pytest.raises(InputError, match=r"it must be (\(B, 3\)|one number for each output, \(3,\))"):
        check_custom(override(own_config(f"bad_{framework}:Number"), {"task": {"output_dim": 3}}))
