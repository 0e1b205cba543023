"""The machine of a run: its threads and devices, and everything else that affects the bits of a run."""

import hashlib
import os
import platform
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from recombine import __version__
from recombine.checks import THREADS, check_size
from recombine.code_digest import UNKNOWN, model_digest, package_commit, package_digest
from recombine.errors import InputError
from recombine.record.run_state import Identity, Start
from recombine.run.process import cache_directory

COMPILED = "RECOMBINE_COMPILED"  # our choice of cache directory; a cluster may pass it on to other machines
TRAINING = ("recombine.train.loop", "recombine.measure.snapshot")  # the code that determines a run
LEAST_MEMORY = 3 << 30  # bytes of addresses; with two thirds of it, XLA fails at the smallest run on two cores


def available_cores() -> int:
    """The number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_gpus() -> list[str]:
    """The NVIDIA GPUs that JAX would use here, by their numbers for CUDA_VISIBLE_DEVICES. JAX is not started for that.

    Empty without JAX's CUDA plugin, or if JAX_PLATFORMS names only others.
    """
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if platforms and not {"cuda", "gpu"} & set(platforms.split(",")):
        return []
    if not any(find_spec(f"jax_cuda{version}_plugin") for version in (12, 13)):
        return []
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name.strip() for name in given.split(",") if name.strip() not in ("", "-1")]
    return [str(number) for number in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))]


def check_memory() -> None:
    """Refuse a limit under which XLA cannot start: it ends the process on the spot, and nothing can be said then."""
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < LEAST_MEMORY:
        raise InputError("ulimit -v", limit // 1024, f"at least {LEAST_MEMORY // 1024} (KiB), or unlimited, for JAX")


def prepare(threads: int | None = None, devices: int = 1, compile_quickly: bool = False) -> None:
    """Set the number of threads and of CPU devices for XLA. This must happen before JAX starts.

    `compile_quickly` is for work that is mostly compiling: programs compile faster, but run slower and differ in their
    last bits. The flag stays in the environment, so that workers inherit it.

    Each of several CPU devices runs single-threaded, because XLA's own threads would only compete with them. XLA's
    thread pool then needs more threads than there are devices: each device blocks one thread while it waits for the
    others, and with only as many threads as devices the first exchange never ends.
    """
    check_memory()
    if threads is not None:
        check_size("threads", threads, most=4096)
    check_size("devices", devices, most=4096)
    if threads not in (None, 1) and devices > 1:
        raise InputError("threads", threads, f"with {devices} devices each has one thread; leave one of the two out")
    if compile_quickly and "xla_backend_optimization_level" not in os.environ.get("XLA_FLAGS", ""):
        _add_flag("--xla_backend_optimization_level=0")
    if _jax_has_started():
        if threads is None and devices == 1:
            _keep_compiled()
            return
        raise InputError("threads", threads, f"(and devices = {devices}) must be set before JAX starts; it has started")
    count = 1 if devices > 1 else threads or available_cores()
    _keep_compiled()
    os.environ[THREADS] = str(count)
    os.environ["NPROC"] = str(count if devices == 1 else 2 * devices)
    if devices > 1:
        _add_flag("--xla_cpu_multi_thread_eigen=false")
        import jax

        jax.config.update("jax_num_cpu_devices", devices)


def identity(devices: int = 1, vmapped: int = 1, custom: str | None = None, custom_task: str | None = None) -> Identity:
    """Everything besides the configuration that affects the bits of a run, with the classes of a custom model and a
    custom task."""
    import jax

    device = jax.devices()[0]
    return Identity(
        recombine=__version__,
        jax=version("jax"),
        jaxlib=version("jaxlib"),
        numpy=version("numpy"),
        optax=version("optax"),
        equinox=version("equinox"),
        x64=bool(jax.config.jax_enable_x64),  # pyright: ignore[reportAttributeAccessIssue]
        platform=device.platform,
        device=_processor() if device.platform == "cpu" else device.device_kind,
        features=_short_hash(_processor_flags()) if device.platform == "cpu" else "",
        devices=devices,
        threads=int(os.environ.get(THREADS, available_cores())),
        xla_flags=os.environ.get("XLA_FLAGS", ""),
        together=vmapped,
        sources=package_digest(*TRAINING),
        model_sources=UNKNOWN if custom is None else model_digest(custom),
        task_sources=UNKNOWN if custom_task is None else model_digest(custom_task),
        framework=UNKNOWN if custom is None else _framework(custom),
    )


def _framework(custom: str) -> str:
    """The framework of a custom model besides JAX, and its version, such as 'torch 2.13.0'; empty for our own."""
    from recombine.model.custom import framework_of

    framework = framework_of(custom)
    return UNKNOWN if framework == "equinox" else f"{framework} {version(framework)}"


def this_start(step: int, identity: Identity) -> Start:
    """The record of a start for `env.json`: the identity, the command, versions of Python and the system."""
    return Start(
        step=step,
        identity=identity,
        python=platform.python_version(),
        system=platform.platform(),
        cores=available_cores(),
        commit=package_commit(),
        versions={name: version(name) for name in ("safetensors", "jaxtyping")},
        command=("recombine", *(word.encode(errors="backslashreplace").decode() for word in sys.argv[1:])),
    )


def peak_memory() -> int:
    """The peak resident memory of this process, in bytes.

    On Linux it is read from /proc: the maximum in `getrusage` includes the parent process.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def _keep_compiled() -> None:
    """Turn on JAX's compilation cache, for later runs and for parallel workers: a short run is mostly compiling.

    Machine code fits one kind of processor, and home directories may be shared, so each kind has its own directory. If
    the user has set JAX's own variable, it takes precedence; if it is empty, nothing is cached.
    """
    given = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if given is None or given == os.environ.get(COMPILED):  # unset, or our own choice, perhaps made on another machine
        home = cache_directory()
        if home is None:
            return
        kind = _short_hash(f"{_processor()} {_processor_flags()}")
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(home / f"compiled-{kind}")
        os.environ[COMPILED] = os.environ["JAX_COMPILATION_CACHE_DIR"]
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
    if "jax" in sys.modules:
        _tell_jax()


def _tell_jax() -> None:
    """Turn the cache on where JAX was imported before us, as in a notebook: it has read its environment by then."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    if jax.config.jax_compilation_cache_dir is not None:  # pyright: ignore[reportAttributeAccessIssue]
        return
    jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"] or None)
    least = float(os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", least)
    compilation_cache.reset_cache()  # JAX decides at its first program whether there is a cache


def _add_flag(flag: str) -> None:
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _processor_flags() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.is_file() else []
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())


def _jax_has_started() -> bool:
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bridge.backends_are_initialized()


def _processor() -> str:
    """The model of the processor. XLA compiles for it, so another model may give other bits."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
