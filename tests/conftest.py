"""Shapes and types are checked at run time in the tests, and only there."""

import ctypes
import gc
import os
import sys
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

# The rooms of arrays. The configuration checks its own values, and its tests give it wrong ones.
rooms = [f"recombine.{room}" for room in ("task", "model", "train", "measure", "storage", "run", "jobs")]
install_import_hook(rooms, "beartype.beartype")

# Where Python may write no bytecode, each of the tests' many processes compiles all of JAX's source: three seconds.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Most of the tests' time is compiling. What was compiled once, by any worker, subprocess or checkout, is not compiled
# again.
cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache / "recombine-tests"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")

# Quickly compiled rather than quickly run: at the tests' sizes that takes a third of the time. It changes last bits, so
# what is about bits alone (the kills) runs as its users do.
QUICKLY = ["backend_optimization_level=0"]
if version("jaxlib").startswith("0.10."):  # a flag that XLA does not know ends the process, and these come and go
    QUICKLY += ["cpu_use_fusion_emitters=false", "cpu_parallel_codegen_split_count=1"]
os.environ.setdefault("XLA_FLAGS", " ".join(f"--xla_{flag}" for flag in QUICKLY))

# Compiling takes its time on a busy machine; no test is about how long it takes. And the same examples every time.
settings.register_profile("recombine", deadline=None, derandomize=True)
settings.load_profile("recombine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--torture", action="store_true", help="the long form of the reliability tests")


@pytest.fixture
def torture(request: pytest.FixtureRequest) -> bool:
    """Whether the long form of a test was requested."""
    return bool(request.config.getoption("--torture"))


@pytest.fixture
def attacked(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """`attacked(kind, count)` counts attacks of a test. With --torture, a table of all of them ends the output."""

    def count_attack(kind: str, count: int = 1) -> None:
        record_property("attack", (kind, count))

    return count_attack


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Attacks and survived ones: a test that fails has not survived its last attack."""
    if not config.getoption("--torture"):
        return
    tries: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            attacks = (
                [value for name, value in report.user_properties if name == "attack"] if report.when == "call" else []
            )
            for kind, count in attacks:
                tries[kind] += count
            if attacks and outcome == "failed":
                lost[attacks[-1][0]] += 1
    if tries:
        terminalreporter.section("attacks: tries, survived")
        for kind, count in sorted(tries.items()):
            terminalreporter.write_line(f"| {kind} | {count:,} | {count - lost[kind]:,} |")


@pytest.fixture(scope="module")
def study() -> Any:
    """A finished study with known numbers, like that of `reproduce`."""
    from tests.study.studies import whole_study

    return whole_study()


@pytest.fixture(scope="module")
def results(study: Any) -> Any:
    """The results figure of that study."""
    from recombine.figure.compose import draw_figure

    return draw_figure(study, "results")


@pytest.fixture(scope="module", autouse=True)
def forget_programs() -> Generator[None, Any, None]:
    """What a module compiled is of no use to the next one. A worker that keeps all of it grows to four gigabytes."""
    yield
    import jax

    jax.clear_caches()
    gc.collect()
    with suppress(OSError, AttributeError):  # glibc alone
        ctypes.CDLL(None).malloc_trim(0)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Generator[None, Any, None]:
    """A test that skips because a system package is missing says "needs …". Where packages are required, it fails."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("RECOMBINE_DEMAND_SYSTEM_DEPS") and "needs " in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and nothing may be: {report.longrepr}"
