"""Who takes part: our contenders, the peers and the machine's own limit."""

from dataclasses import asdict, replace
from typing import Any

from recombine.bench.matmul import NUMPY_SIZE
from recombine.bench.matmul import Job as MatmulJob
from recombine.bench.peer.job import Job
from recombine.bench.process import Entry
from recombine.config.schema import Config, TrunkConfig
from recombine.config.toml import config_tables, override

OWN = ("plain", "fast", "fast_sharded")  # one run each, on all threads
ONE_THREAD = "fast_single"
SIDE_BY_SIDE = "fast_pair"  # as many runs as threads, each single-threaded
PEERS = ("flax_linen", "torch_eager", "torch_compiled", "gpt2")
CONTENDERS = (*OWN, ONE_THREAD, SIDE_BY_SIDE, *PEERS)
LIMITS = ("numpy_matmul", "jax_matmul")

# The fast path goes through the batch in pieces of this size: `recombine.train.step`, which needs JAX.
NUMBERS_AT_ONCE = 2**17
LEAST_FLOPS = 5e9  # of a step of JAX's: with less, the call would be measured and not the products


def enter(name: str, config: Config, threads: int, entered_as: str | None = None) -> Entry:
    """A contender for a training job on so many threads in all."""
    entered_as = entered_as or name
    if name in PEERS:
        job = asdict(Job.from_config(config))
        return Entry(entered_as, f"recombine.bench.peer.{name}", job, thread_environment(threads))
    match name:
        case "plain":
            job = _own_job(override(config, {"compute": {"path": "plain"}}), threads)
        case "fast":
            job = _own_job(config, threads)
        case "fast_sharded":
            job = _own_job(config, threads, devices=threads)
        case "fast_single" | "fast_pair":
            job = _own_job(config, threads=1)
        case _:
            raise ValueError(f"no contender is called {name!r}")
    processes = threads if name == SIDE_BY_SIDE else 1
    return Entry(entered_as, "recombine.bench.ours", job, thread_environment(job["threads"]), processes)


def enter_limits(config: Config, threads: int) -> list[Entry]:
    """NumPy at a size that suits it, and JAX at the sizes of the feed-forward layer."""
    model, optimizer = config.model, config.optimizer
    assert isinstance(model, TrunkConfig)
    rows = min(NUMBERS_AT_ONCE // model.embed_dim, optimizer.batch_size * config.task.episode_length)
    feedforward = MatmulJob("jax", rows, model.embed_dim, model.ffn_factor * model.embed_dim, products=1)
    products = max(1, round(LEAST_FLOPS / feedforward.flops))
    jobs = (
        MatmulJob("numpy", NUMPY_SIZE, NUMPY_SIZE, NUMPY_SIZE, products=1),
        replace(feedforward, products=products),
    )
    environment = thread_environment(threads)
    return [
        Entry(name, "recombine.bench.matmul", asdict(job), environment) for name, job in zip(LIMITS, jobs, strict=True)
    ]


def thread_environment(threads: int) -> dict[str, str]:
    """Tells every library how many threads it gets: XLA (NPROC), PyTorch and NumPy. Ours go by `prepare` as well."""
    names = ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return dict.fromkeys(names, str(threads))


def _own_job(config: Config, threads: int, devices: int = 1) -> dict[str, Any]:
    return {"config": config_tables(config), "threads": threads, "devices": devices}
