"""Custom models: imported only if the command names them, and checked before training."""

import json
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.cli.main import main
from recombine.config.model import CustomModelConfig
from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.config.toml import config_tables, override
from recombine.errors import InputError
from recombine.jobs.paper_runs import BOTTLENECK
from recombine.measure.predict import predict
from recombine.model.build import build_model, count_parameters
from recombine.model.custom import check_custom, import_model
from recombine.numerics import exact_jit
from recombine.stream import Stream, stream_key
from recombine.task.episode import episode_keys, sample_episodes
from recombine.train.step import config_tasks, init_state, train_step
from tests.model.user_models import MODELS, RANDOM


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of models, importable from the current directory."""
    (tmp_path / "my_models.py").write_text(MODELS)
    (tmp_path / "my_random_models.py").write_text(RANDOM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    for name in ("my_models", "my_random_models"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "my_models"


def own_config(kind: str, **options) -> Config:
    return override(preset_config("smoke", kind), {"model": {"options": options}})


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("WrongArguments", "cannot be called (TypeError"),
        ("WrongShape", "its y has shape (4,); it must be one number, ()"),
        ("BareNumber", "it must return Output(y, Trace())"),
        ("NoParameters", "has no parameters"),
        ("Half", "bfloat16, not float32"),
        ("KeepsKey", ".key is a random key, which cannot be saved"),
        ("Plain", "not an equinox.Module"),
        ("NoGradient", "every gradient is 0"),
        ("NotFinite", "predicts nan before it is trained"),
        ("Leaves", "cannot be built (SystemExit: 0, my_models.py line"),
        ("Looks", "cannot be built (TracerBoolConversionError"),
        ("Integer", "cannot be differentiated (TypeError"),
        ("WrongLatent", "its trace.latent has shape (); it must be (latent,)"),
        ("WrongResidual", "its trace.residual has shape (7, 4); it must be (points, tokens, embed)"),
        ("NoTrace", "its trace is a NoneType"),
        ("WrongExecute", "execute(latent, x) gives shape (2,)"),
        ("ExecuteTakesOne", "execute(latent, x) cannot be called (TypeError"),
        ("Peeks", "would be shown the query's label"),
        ("NeedsKey", "cannot be called (TypeError"),
        ("DropsInItsCall", "compute.path=plain"),
    ],
)
def test_a_wrong_signature_is_one_clear_line(models: str, name: str, complaint: str) -> None:
    import_model(f"{models}:{name}")
    with pytest.raises(InputError) as caught:
        check_custom(own_config(f"{models}:{name}"))
    assert complaint in str(caught.value)
    assert f"{models}:{name}" in str(caught.value)


def test_a_model_that_asks_for_a_key_gets_one_in_training_alone(models: str) -> None:
    """Each episode of each step has its own key, the same however the batch is cut."""
    kind = f"{models}:Drops"
    import_model(kind)
    config = own_config(kind, start=0.0)
    check_custom(config)
    model = build_model(config, key=jax.random.key(0))
    tasks, state, seed = config_tasks(config), init_state(config), jnp.asarray(0, jnp.uint32)
    (rows, count), length = tasks.masks, config.task.episode_length
    episodes = sample_episodes(stream_key(0, Stream.train, 3), tasks.teacher, rows, length, 16, 0, count)
    loss = exact_jit(train_step)(config, seed, tasks, state, jnp.asarray(3)).loss
    drawn = jax.vmap(jax.random.normal)(episode_keys(stream_key(0, Stream.dropout, 3), 16))
    np.testing.assert_allclose(loss, jnp.mean((drawn - episodes.query_y) ** 2), rtol=1e-4)
    np.testing.assert_array_equal(predict(model, episodes), 0)


RANDOM_CLASSES = [name for name in re.findall(r"^class (\w+)", RANDOM, re.MULTILINE) if name != "Determined"]


@pytest.mark.parametrize("name", RANDOM_CLASSES)
def test_a_model_that_is_another_one_each_time_is_refused(models: str, name: str) -> None:
    """Each program that is compiled of it would have other constants: the measured model is not the trained one."""
    kind = f"my_random_models:{name}"
    import_model(kind)
    with pytest.raises(InputError, match=kind):
        check_custom(own_config(kind))


def test_a_model_that_is_the_same_each_time_is_not(models: str) -> None:
    import_model("my_random_models:Determined")
    check_custom(own_config("my_random_models:Determined"))


def test_a_random_model_is_refused_before_anything_is_written(models: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "--model", "my_random_models:DrawsInCall", "--preset", "smoke", "--out", "run"]
    assert main(command) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("no_such_module:Model", "cannot be imported (ModuleNotFoundError"),
        ("my_models:NoSuch", "cannot be imported (AttributeError"),
        ("my_models:number", "is not a class"),
        ("my_models:NoKey", "cannot be built by Class(config, key=key): got an unexpected keyword argument 'key'"),
        ("os:getcwd", "cannot be built by Class(config, key=key): too many positional arguments"),
        ("my models:Mean", "package.module:Class"),
        ("broken:Model", "cannot be imported (ZeroDivisionError: division by zero, broken.py line 1)"),
        ("leaving:Model", "cannot be imported (SystemExit: 0"),
    ],
)
def test_what_cannot_be_imported(models: str, kind: str, complaint: str) -> None:
    Path("broken.py").write_text("1 / 0")
    Path("leaving.py").write_text("raise SystemExit(0)")
    with pytest.raises(InputError) as caught:
        import_model(kind)
    assert complaint in str(caught.value)


def test_a_run_of_it(models: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "--model", f"{models}:Mean", "--preset", "smoke", "--out", "run", "--json"]
    command += ["--set", "model.options.start=0.25", "measure.episodes=16", "optimizer.num_steps=8"]
    assert main(command) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["config"]["model"] == {"kind": "my_models:Mean", "options": {"start": 0.25}}
    assert result["scores"]["probe"] is None
    rows = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert rows[0]["in_dist"]["mse"] != rows[-1]["in_dist"]["mse"], "it was trained"
    assert main(["eval", "run", "--json", "--model", f"{models}:Mean"]) == 0
    card = json.loads(capsys.readouterr().out)
    assert card["interventions"] is None
    assert card["num_parameters"] == 1
    assert card["ood"]["r2"] == rows[-1]["ood"]["r2"]


def test_a_file_imports_nothing(models: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A configuration that names a class is refused unless the command does too."""
    Path("trap.py").write_text("raise SystemExit('imported')")
    Path("config.toml").write_text("[model]\nkind = 'trap:Model'\n")
    assert main(["train", "--config", "config.toml", "--preset", "smoke", "--out", "run"]) == 2
    assert "a class is imported only where the command names it: --model trap:Model" in capsys.readouterr().err
    assert not Path("run").exists()
    with pytest.raises(InputError, match="--model trap:Model"):
        build_model(Config(model=CustomModelConfig("trap:Model")), key=jax.random.key(0))


def test_a_trunk_model_that_the_fast_path_would_change_is_refused(models: str) -> None:
    """The fast path passes read_out only the last token, so it would change a model that pools over tokens."""
    Path("pooling.py").write_text(
        "from recombine.model.bottleneck import Bottleneck\n"
        "class Pooling(Bottleneck):\n"
        "    def read_out(self, X, context_x, context_y, query_x):\n"
        "        z = self.latent(X.mean(axis=0))\n"
        "        return self.execute(z, query_x), z\n"
    )
    sys.modules.pop("pooling", None)
    import_model("pooling:Pooling")
    config = own_config("pooling:Pooling", embed_dim=16)
    with pytest.raises(InputError, match=r"compute\.path=plain"):
        check_custom(config)
    check_custom(override(config, {"compute": {"path": "plain"}}))


def test_options_survive_the_file(models: str) -> None:
    config = own_config(f"{models}:Mean", start=0.25, name="x", deep=True)
    assert override(Config(), config_tables(config)) == config
    assert hash(config) == hash(override(Config(), config_tables(config)))
    with pytest.raises(InputError, match=r"model\.options\.list"):
        own_config(f"{models}:Mean", list=[1])


def test_the_bottleneck_has_the_hypertransformers_trunk_and_as_many_parameters() -> None:
    import_model(BOTTLENECK)
    for preset in ("smoke", "quick", "paper"):
        hyper = preset_config(preset, "hypertransformer")
        sizes = {"embed_dim": hyper.model.embed_dim}
        config = override(preset_config(preset, BOTTLENECK), {"model": {"options": sizes}})
        ours, theirs = (build_model(c, key=jax.random.key(0)) for c in (config, hyper))
        assert count_parameters(ours.trunk) == count_parameters(theirs.trunk)
        execution = [count_parameters(m) - count_parameters(m.trunk) for m in (ours, theirs)]
        assert execution[0] == pytest.approx(execution[1], rel=0.05)


def test_the_bottleneck_sees_the_query_only_after_the_latent() -> None:
    import_model(BOTTLENECK)
    config = override(preset_config("smoke", BOTTLENECK), {"model": {"options": {"embed_dim": 16}}})
    model = build_model(config, key=jax.random.key(0))
    x, y = jax.random.normal(jax.random.key(1), (7, 4)), jax.random.normal(jax.random.key(2), (7,))
    one, two = (model(x, y, query) for query in (jnp.ones(4), jnp.zeros(4)))
    np.testing.assert_array_equal(one.trace.latent, two.trace.latent)
    assert one.y != two.y


def test_the_informed_transformer_is_shown_the_latent_and_nothing_else() -> None:
    config = override(preset_config("paper", "transformer"), {"model": {"given_latent": True}})
    assert config.model.label == "informed"
    from recombine.task.sample import sample_split
    from recombine.task.teacher import config_teacher

    _, episodes = sample_split(0, "ood", config_teacher(config), config.task.support, 8, 5)
    x, y, query = episodes.shown("latent")
    np.testing.assert_array_equal(x[:, 0, :6], episodes.latent)
    np.testing.assert_array_equal(x[:, 0, 6:], 0)
    np.testing.assert_array_equal(y[:, 0], 0)
    np.testing.assert_array_equal(x[:, 1:], episodes.context_x)
    np.testing.assert_array_equal(y[:, 1:], episodes.context_y)
    np.testing.assert_array_equal(query, episodes.query_x)
    with pytest.raises(InputError, match=r"model\.given_latent"):
        override(config, {"task": {"input_dim": 5}})


def test_a_class_with_vector_labels(models: str) -> None:
    kind = f"{models}:Outputs"
    import_model(kind)
    vectors = override(own_config(kind), {"task": {"output_dim": 3}})
    check_custom(vectors)
    scalar = own_config(kind)
    with pytest.raises(InputError, match=r"its y has shape \(1,\); it must be one number, \(\)"):
        check_custom(scalar)
    with pytest.raises(InputError, match=r"its y has shape \(\); it must be one number for each output, \(3,\)"):
        import_model(f"{models}:Mean")
        check_custom(override(own_config(f"{models}:Mean"), {"task": {"output_dim": 3}}))
