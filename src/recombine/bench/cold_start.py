"""Cold starts: seconds from the start of a process to its first step."""

import tempfile
from dataclasses import replace

from recombine.bench.contender import enter
from recombine.bench.race import Report, race
from recombine.bench.result import ColdStart, SecondsByCache, Spread
from recombine.config.schema import Config

CACHES = ("empty", "filled")


def measure_cold_start(config: Config, threads: int, repeats: int, report: Report) -> ColdStart:
    """Start two processes per repeat: one with JAX's compilation cache empty, one with the cache that the first filled.

    The first step counts as the end of the start.
    """
    seconds: dict[str, list[float]] = {cache: [] for cache in CACHES}
    failures: list[str] = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="recombine-cache-") as directory:
            for cache in CACHES:
                entry = enter("fast", config, threads)
                variables = {
                    "JAX_COMPILATION_CACHE_DIR": directory,
                    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",  # keep also the programs that compile fast
                }
                entry = replace(entry, environment={**entry.environment, **variables})
                (result,) = race([entry], steps=1, repeats=0, report=report).values()
                if result.out is not None:
                    failures.append(result.out.reason)
                elif result.start_seconds is not None:
                    seconds[cache].append(result.start_seconds)
    spreads = {cache: Spread.of(measured) if measured else None for cache, measured in seconds.items()}
    return ColdStart(
        model=config.model.kind,
        length=config.task.episode_length,
        seconds=SecondsByCache(empty=spreads["empty"], filled=spreads["filled"]),
        failures=tuple(failures),
    )
