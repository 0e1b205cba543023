"""Cold starts: seconds from the start of a process to its first finished training step."""

import tempfile
from dataclasses import replace
from typing import Any

from recombine.bench.compare import spread
from recombine.bench.contender import enter
from recombine.bench.race import Report, race
from recombine.config.schema import Config

CACHES = ("empty", "filled")


def measure_cold_start(config: Config, threads: int, repeats: int, report: Report) -> dict[str, Any]:
    """With JAX's persistent compilation cache empty, and then filled by that same process, each in a fresh one."""
    seconds: dict[str, list[float]] = {cache: [] for cache in CACHES}
    failures: list[str] = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="recombine-cache-") as directory:
            for cache in CACHES:
                entry = enter("fast", config, threads)
                settings = {
                    "JAX_COMPILATION_CACHE_DIR": directory,
                    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",  # keep what compiles fast, too
                }
                entry = replace(entry, environment={**entry.environment, **settings})
                (result,) = race([entry], steps=1, repeats=0, report=report).values()
                if result.start_seconds is None:
                    failures.append(result.failed or result.missing or "")
                else:
                    seconds[cache].append(result.start_seconds)
    return {
        "model": config.model.kind,
        "length": config.task.episode_length,
        "seconds": {cache: spread(measured) if measured else None for cache, measured in seconds.items()},
        "failures": failures,
    }
