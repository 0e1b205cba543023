"""The contenders: ours, the peers, and the limits of the machine."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from recombine.bench.contender_process import Contestant
from recombine.bench.matmul import NUMPY_SIZE
from recombine.bench.setting import MatmulSetting, OurSetting, PeerSetting
from recombine.config.model import HypertransformerConfig, TrunkConfig
from recombine.config.schema import Config
from recombine.config.toml import override

OURS = ("plain", "fast", "fast_sharded")  # one run each, on all threads
ONE_THREAD = "fast_single"
SIDE_BY_SIDE = "fast_pair"  # as many runs as threads, each single-threaded
EXPLICIT = {"explicit_1": 1, "explicit_3": 3}  # steps of explicit inference; the others have none
PEERS = ("flax_linen", "torch_eager", "torch_compiled", "gpt2")
CONTENDERS = (*OURS, *EXPLICIT, ONE_THREAD, SIDE_BY_SIDE, *PEERS)
LIMITS = ("numpy_matmul", "jax_matmul")

# The fast path takes the batch in pieces of this size. The constant is that of `recombine.train.step`, which needs JAX.
NUMBERS_AT_ONCE = 2**17
LEAST_FLOPS = 5e9  # in a step of JAX's products: with fewer, the call would be measured and not the products


def enter(name: str, config: Config, threads: int, entered_as: str | None = None) -> Contestant:
    """The entry of a contender that trains this configuration, with this total number of threads."""
    entered_as = entered_as or name
    if name in PEERS:
        setting = PeerSetting.from_config(config)
        return Contestant(entered_as, f"recombine.bench.peer.{name}", setting, thread_environment(threads))
    setting = _our_setting(name, config, threads)
    processes = threads if name == SIDE_BY_SIDE else 1
    return Contestant(entered_as, "recombine.bench.ours", setting, thread_environment(setting.threads), processes)


def entered_for(config: Config, contenders: Sequence[str]) -> tuple[str, ...]:
    """The contenders without those that cannot train this model: only a hypertransformer has explicit inference."""
    hyper = isinstance(config.model, HypertransformerConfig)
    return tuple(name for name in contenders if hyper or name not in EXPLICIT)


def limit_settings(config: Config) -> dict[str, MatmulSetting]:
    """NumPy at a size that suits it, and JAX at the sizes of the feed-forward layer."""
    model, optimizer = config.model, config.optimizer
    assert isinstance(model, TrunkConfig)
    rows = min(NUMBERS_AT_ONCE // model.embed_dim, optimizer.batch_size * config.task.episode_length)
    feedforward = MatmulSetting("jax", rows, model.embed_dim, model.ffn_factor * model.embed_dim, products=1)
    products = max(1, round(LEAST_FLOPS / feedforward.flops))
    return {
        "numpy_matmul": MatmulSetting("numpy", NUMPY_SIZE, NUMPY_SIZE, NUMPY_SIZE, products=1),
        "jax_matmul": replace(feedforward, products=products),
    }


def enter_limits(settings: Mapping[str, MatmulSetting], threads: int) -> list[Contestant]:
    environment = thread_environment(threads)
    return [Contestant(name, "recombine.bench.matmul", setting, environment) for name, setting in settings.items()]


def thread_environment(threads: int) -> dict[str, str]:
    """The variables that tell each library its number of threads: XLA (NPROC), PyTorch and NumPy.

    Our contenders call `prepare` with that number as well.
    """
    names = ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return dict.fromkeys(names, str(threads))


def _our_setting(name: str, config: Config, threads: int) -> OurSetting:
    match name:
        case "plain":
            return OurSetting.from_config(override(config, {"compute": {"path": "plain"}}), threads)
        case "fast":
            return OurSetting.from_config(config, threads)
        case "fast_sharded":
            return OurSetting.from_config(config, threads, devices=threads)
        case "explicit_1" | "explicit_3":
            return OurSetting.from_config(override(config, {"model": {"inference_steps": EXPLICIT[name]}}), threads)
        case "fast_single" | "fast_pair":
            return OurSetting.from_config(config, threads=1)
    raise ValueError(f"no contender is called {name!r}")
