"""The peers train the same model on the same episodes."""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from msgspec.structs import replace
from scipy import special

from recombine.bench.setting import MissingRequirement, PeerSetting
from recombine.config.model import ModelKind
from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.config.toml import override
from recombine.model.build import build_model
from recombine.model.weights import named_arrays


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


PEERS = {"flax_linen": ("flax", "jax", "optax"), "torch_eager": ("torch",), "gpt2": ("torch", "transformers")}
KINDS = get_args(ModelKind)


def tiny_config(kind: ModelKind) -> Config:
    changes = {"batch_size": 64, "num_steps": 1_000, "learning_rate": 3e-3}
    # With this seed, all models start far from the loss that they reach in a hundred steps.
    return override(preset_config("smoke", kind), {"seed": 1, "optimizer": changes})


def load(name: str, packages: tuple[str, ...]) -> ModuleType:
    """The peer's module, or a skip that names the package that is missing."""
    for package in packages:
        pytest.importorskip(package)
    if "torch" in packages:
        # When tests run in parallel they share the cores, and PyTorch's threads mostly wait for each other.
        import_module("torch").set_num_threads(1)
    return import_module(f"recombine.bench.peer.{name}")


class Peer(NamedTuple):
    """A peer's freshly initialised model, on a batch of episodes."""

    num_parameters: int
    prediction: np.ndarray
    gradient: dict[str, np.ndarray]
    """The gradient of the loss in every part of the episodes."""


def any_episodes(setting: PeerSetting) -> dict[str, np.ndarray]:
    """Random numbers in the shape of episodes: a label that leaks does so whatever its value."""
    batch, context = setting.batch_size, setting.episode_length - 1
    shapes = {
        "context_x": (batch, context, setting.input_dim),
        "context_y": (batch, context),
        "query_x": (batch, setting.input_dim),
        "query_y": (batch,),
        "latent": (batch, setting.num_modules),
    }
    random = np.random.default_rng(0)
    return {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def torch_peer(module: ModuleType, setting: PeerSetting, episodes: dict[str, np.ndarray]) -> Peer:
    torch, task = import_module("torch"), import_module("recombine.bench.peer.torch_task")
    loss = import_module("recombine.bench.peer.torch_eager").query_loss
    model = module.build_model(setting)
    parts = {name: torch.tensor(value, requires_grad=True) for name, value in episodes.items()}
    gradient = torch.autograd.grad(loss(model, task.Episodes(**parts)), list(parts.values()), materialize_grads=True)
    prediction = model(parts["context_x"], parts["context_y"], parts["query_x"])
    return Peer(
        sum(parameter.numel() for parameter in model.parameters()),
        prediction.detach().numpy(),
        {name: value.numpy() for name, value in zip(parts, gradient, strict=True)},
    )


def flax_peer(module: ModuleType, setting: PeerSetting, episodes: dict[str, np.ndarray]) -> Peer:
    task = import_module("recombine.bench.peer.jax_task")
    state = module.build_state(jax.random.key(setting.seed), setting)

    @jax.jit
    def run(episodes: Any) -> tuple[Any, Any]:
        gradient = jax.grad(lambda episodes: module.query_loss(state, state.params, episodes))(episodes)
        x, y, query_x, *_ = episodes
        return state.apply_fn({"params": state.params}, x, y, query_x), gradient

    prediction, gradient = jax.tree.map(np.asarray, run(task.Episodes(**episodes)))
    return Peer(sum(leaf.size for leaf in jax.tree.leaves(state.params)), prediction, gradient._asdict())


def our_num_parameters(config: Config) -> int:
    """The size of our model without the position bias, which the peers do not have."""
    config = override(config, {"model": {"position_bias": "none"}})
    shapes = eqx.filter_eval_shape(build_model, config, key=jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes) if isinstance(leaf, jax.ShapeDtypeStruct))


def extra_num_parameters(name: str, setting: PeerSetting) -> int:
    """The parameters that a peer has beyond our model without its position bias; those it lacks are negative."""
    if name != "gpt2":
        return 0
    positions = (2 * setting.episode_length - 1) * setting.embed_dim  # learned, one for each token
    vocabulary = setting.embed_dim  # a table of one word, never looked up
    read_in = -setting.embed_dim  # of tokens with d entries; with the label beside x they have d + 1
    return positions + vocabulary + read_in


each_peer = pytest.mark.parametrize("name", PEERS)
each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
@each_peer
def test_the_loss_falls(name: str, kind: ModelKind) -> None:
    module = load(name, PEERS[name])
    stepper = module.make_stepper(replace(PeerSetting.from_config(tiny_config(kind)), num_layers=1))
    first = stepper(1)
    stepper(130)
    last = np.mean([stepper(1) for _ in range(20)])
    assert isinstance(first, float)
    assert last < 0.5 * first


@each_kind
@each_peer
def test_architecture(name: str, kind: ModelKind) -> None:
    """A peer has as many parameters as our model. The query's label reaches the loss, but not the prediction."""
    module = load(name, PEERS[name])
    assert packages_of(module) == PEERS[name]
    config = tiny_config(kind)
    setting = PeerSetting.from_config(config)
    episodes = any_episodes(setting)
    peer = (flax_peer if name == "flax_linen" else torch_peer)(module, setting, episodes)
    assert peer.num_parameters == our_num_parameters(config) + extra_num_parameters(name, setting)

    y, prediction = episodes["query_y"], peer.prediction
    assert prediction.shape == (setting.batch_size,)
    # If the label reached the prediction ŷ, the gradient of (ŷ − y)² in y would have another term.
    np.testing.assert_allclose(
        peer.gradient["query_y"], 2 * (y - prediction) / setting.batch_size, rtol=1e-4, atol=1e-7
    )
    # Every part of the context, and the query, must reach the prediction.
    for part in ("context_x", "context_y", "query_x"):
        assert (np.abs(peer.gradient[part]).max(axis=0) > 0).all()


TORCH_NAMES = {
    "trunk.blocks": "trunk.encoder.layers",
    "trunk.final_norm": "trunk.encoder.norm",
    "attention_norm": "norm1",
    "feedforward_norm": "norm2",
    "attention.output": "self_attn.out_proj",
    "feedforward.expand": "linear1",
    "feedforward.contract": "linear2",
}
FLAX_NAMES = {
    "trunk.blocks.": "Trunk_0.Block_",
    "trunk.final_norm.weight": "Trunk_0.LayerNorm_0.scale",
    "trunk.final_norm": "Trunk_0.LayerNorm_0",
    "trunk.embedding": "Trunk_0.Dense_0",
    "attention_norm.weight": "LayerNorm_0.scale",
    "attention_norm": "LayerNorm_0",
    "feedforward_norm.weight": "LayerNorm_1.scale",
    "feedforward_norm": "LayerNorm_1",
    "attention.output": "attention.out",
    "attention.": "MultiHeadDotProductAttention_0.",
    "feedforward.expand": "Dense_0",
    "feedforward.contract": "Dense_1",
    "weight": "kernel",
}


def renamed(weights: dict[str, np.ndarray], names: dict[str, str]) -> dict[str, np.ndarray]:
    for ours, theirs in names.items():
        weights = {name.replace(ours, theirs): value for name, value in weights.items()}
    return weights


def torch_prediction(setting: PeerSetting, weights: dict[str, np.ndarray], episodes: list[np.ndarray]) -> np.ndarray:
    torch = import_module("torch")
    weights = {name: value.T if value.ndim == 2 else value for name, value in renamed(weights, TORCH_NAMES).items()}
    for layer in range(setting.num_layers):  # query, key and value are one matrix there
        for part in ("weight", "bias"):
            prefix = f"trunk.encoder.layers.{layer}"
            stack = [weights.pop(f"{prefix}.attention.{name}.{part}") for name in ("query", "key", "value")]
            weights[f"{prefix}.self_attn.in_proj_{part}"] = np.concatenate(stack)
    model = import_module("recombine.bench.peer.torch_eager").build_model(setting)
    model.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    return model(*map(torch.tensor, episodes)).detach().numpy()


def flax_prediction(setting: PeerSetting, weights: dict[str, np.ndarray], episodes: list[np.ndarray]) -> np.ndarray:
    flax = import_module("flax")
    state = import_module("recombine.bench.peer.flax_linen").build_state(jax.random.key(0), setting)
    heads = (
        {"latent": "Dense_0", "readout": "Dense_1"} if setting.kind == "hypertransformer" else {"readout": "Dense_0"}
    )
    weights = renamed(weights, {**FLAX_NAMES, **heads})
    params = flax.traverse_util.unflatten_dict(weights, sep=".")
    params = jax.tree.map(lambda like, value: value.reshape(like.shape), state.params, params)  # heads are an axis
    return np.asarray(jax.jit(state.apply_fn)({"params": params}, *episodes))


@each_kind
@pytest.mark.parametrize(("name", "predict"), [("torch_eager", torch_prediction), ("flax_linen", flax_prediction)])
def test_our_weights_make_our_predictions(name: str, predict: Callable[..., np.ndarray], kind: ModelKind) -> None:
    """With the parameters of our model without its position bias, these peers are our model."""
    load(name, PEERS[name])
    config = override(tiny_config(kind), {"model": {"position_bias": "none"}})
    setting = PeerSetting.from_config(config)
    model = eqx.filter_jit(build_model)(config, key=jax.random.key(0))
    parts = any_episodes(setting)
    episodes = [parts["context_x"], parts["context_y"], parts["query_x"]]
    expected = eqx.filter_jit(jax.vmap(lambda *episode: model(*episode).y))(*episodes)
    np.testing.assert_allclose(predict(setting, named_arrays(model), episodes), expected, atol=1e-5)


def packages_of(module: ModuleType) -> tuple[str, ...]:
    assert module.__all__ == ["REQUIRES", "make_stepper"]
    return module.REQUIRES


@each_kind
@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # from within PyTorch's compiler
def test_compiled_is_eager(kind: ModelKind, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    eager, compiled = load("torch_eager", ("torch",)), load("torch_compiled", ("torch",))
    assert packages_of(compiled) == ("torch",)
    if compiled.cpp_compiler() is None:
        pytest.skip("torch.compile needs a C++ compiler on a CPU")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(pytestconfig.rootpath / ".pytest_cache" / "inductor"))
    setting = replace(PeerSetting.from_config(tiny_config(kind)), num_layers=1)
    expected = [*map(eager.make_stepper(setting), (1, 20))]
    compile, called = import_module("torch").compile, []
    monkeypatch.setattr("torch.compile", lambda *args, **kwargs: called.append(args) or compile(*args, **kwargs))
    np.testing.assert_allclose([*map(compiled.make_stepper(setting), (1, 20))], expected, rtol=1e-4)
    assert len(called) == 1


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = load("torch_compiled", ("torch",))
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(MissingRequirement, match=r"C\+\+ compiler"):
        compiled.make_stepper(PeerSetting.from_config(tiny_config("transformer")))
