"""The contenders: ours is the training loop, and each runs in a process of its own."""

import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from recombine.bench import contender, matmul, ours
from recombine.bench.contender import CONTENDERS, LIMITS, PEERS, enter, enter_limits, entered_for, limit_settings
from recombine.bench.contender_main import answers
from recombine.bench.message import Answer, Failed, Missing, Order, Ready, Turn
from recombine.bench.race import race
from recombine.bench.setting import MatmulSetting, MissingRequirement, OurSetting, PeerSetting
from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.config.toml import override
from recombine.record.codec import decode, encode
from recombine.train import step
from recombine.train.loop import train

PAPER = preset_config("paper", "hypertransformer")
SMOKE = preset_config("smoke", "hypertransformer")


def our_setting(name: str, config: Config, threads: int) -> OurSetting:
    setting = enter(name, config, threads).setting
    assert isinstance(setting, OurSetting)
    return setting


@pytest.mark.parametrize("name", CONTENDERS)
def test_threads_and_devices(name: str) -> None:
    """The processes and devices of a contender have in all the threads that were asked for."""
    entry = enter(name, PAPER, threads=6)
    environment = entry.environment
    assert environment["NPROC"] == environment["OMP_NUM_THREADS"] == environment["OPENBLAS_NUM_THREADS"]
    threads = {"fast_single": 1, "fast_pair": 1}.get(name, 6)
    assert environment["NPROC"] == str(threads)
    assert entry.processes == (6 if name == "fast_pair" else 1)
    if name in PEERS:
        assert entry.setting == PeerSetting.from_config(PAPER)
        return
    setting = our_setting(name, PAPER, threads=6)
    assert (setting.threads, setting.devices) == (threads, 6 if name == "fast_sharded" else 1)
    changes = {"compute": {"path": "plain" if name == "plain" else "fast"}}
    changes["model"] = {"inference_steps": {"explicit_1": 1, "explicit_3": 3}.get(name, 0)}
    assert setting.config == override(PAPER, changes)
    assert import_module(entry.module) is ours


def test_explicit_inference_is_the_hypertransformers() -> None:
    assert entered_for(PAPER, CONTENDERS) == CONTENDERS
    others = set(CONTENDERS) - set(entered_for(preset_config("paper", "transformer"), CONTENDERS))
    assert others == {"explicit_1", "explicit_3"}


def test_no_such_contender() -> None:
    with pytest.raises(ValueError, match="fats"):
        enter("fats", PAPER, threads=1)


def test_the_limits() -> None:
    assert contender.NUMBERS_AT_ONCE == step.NUMBERS_AT_ONCE
    settings = limit_settings(PAPER)
    assert tuple(settings) == tuple(entry.name for entry in enter_limits(settings, threads=2)) == LIMITS
    in_numpy, in_jax = settings.values()
    assert in_numpy == MatmulSetting("numpy", 2048, 2048, 2048, products=1)
    assert (in_jax.rows, in_jax.inner, in_jax.columns) == (2048, 64, 256)
    assert in_jax.flops == pytest.approx(contender.LEAST_FLOPS, rel=0.05)


@pytest.mark.parametrize("library", ["numpy", "jax"])
def test_products_keep_the_numbers_as_they_are(library: str) -> None:
    """A thousand products are timed on ordinary numbers."""
    stepper = matmul.make_stepper(MatmulSetting(library, rows=5, inner=8, columns=32, products=100))
    expected = np.random.default_rng(0).standard_normal((5, 8), np.float32)[0, 0]
    assert [stepper(1), stepper(10)] == pytest.approx([expected, expected], rel=1e-3)


@pytest.fixture
def _jax_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "prepare", lambda threads, devices: None)  # it must come before JAX starts


@pytest.mark.usefixtures("_jax_has_started")
@pytest.mark.parametrize("name", [pytest.param("plain", marks=pytest.mark.slow), "fast"])
def test_ours_is_the_training_loop(name: str) -> None:
    """Each call resumes where the last one stopped, as in `recombine train`."""
    stepper = ours.make_stepper(our_setting(name, SMOKE, threads=1))
    found = [stepper(1), stepper(2), stepper(1)]
    state, tasks = step.init_state(SMOKE), step.config_tasks(SMOKE)
    losses = np.concatenate([snapshot.losses for snapshot in train(SMOKE, tasks, state, 0, every=10, last=4)])
    # The bits are the same on the path of this configuration; the other path rounds differently.
    np.testing.assert_allclose(found, losses[[0, 2, 3]], rtol=0 if name == "fast" else 1e-4)


@pytest.mark.usefixtures("_jax_has_started")
def test_a_batch_that_cannot_be_shared() -> None:
    with pytest.raises(MissingRequirement, match="devices = 7"):
        ours.make_stepper(our_setting("fast_sharded", SMOKE, threads=7))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fast_sharded", "fast_pair"])
def test_ours_in_processes_of_their_own(name: str) -> None:
    """The benchmark starts our contenders with their threads and devices."""
    result = race([enter(name, SMOKE, threads=2)], steps=2, repeats=1)[name]
    assert result.out is None
    assert [len(answers) for answers in result.rounds] == [2 if name == "fast_pair" else 1]


CONTENDER = """
REQUIRES = ("numpy",)

def make_stepper(setting):
    calls = []
    assert setting.masks[0] == (1, 1, 0, 0, 0, 0)
    print("a library that talks")
    def run(num_steps):
        calls.append(num_steps)
        return float(sum(calls))
    return run
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Callable[[str], str]:
    """A function that writes the module of a contender and returns its name."""

    def write(text: str) -> str:
        name = f"contender_{abs(hash((request.node.nodeid, text)))}"  # imported once, so never the same name again
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        return name

    return write


def order(module: str) -> str:
    return encode(Order(module, PeerSetting.from_config(preset_config("smoke", "transformer"))))


def test_the_conversation(tmp_path: Path) -> None:
    """An order, then numbers of steps. Only answers are on stdout. The end of the input ends the process."""
    (tmp_path / "contender.py").write_text(CONTENDER)
    with subprocess.Popen(
        [sys.executable, "-m", "recombine.bench.contender_main"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None

        def ask(line: str) -> Ready | Turn | Missing | Failed:
            print(line, file=stdin, flush=True)
            return decode(stdout.readline(), Answer).content

        ready = ask(order("contender"))
        turns = [turn for turn in (ask("7"), ask("2")) if isinstance(turn, Turn)]
        stdin.close()
        assert process.wait(timeout=60) == 0
        assert stdout.read() == ""
        assert "a library that talks" in stderr.read()
    assert isinstance(ready, Ready)
    assert min(ready.import_seconds, ready.setup_seconds, ready.first_step_seconds) > 0
    assert ready.versions.keys() == {"numpy"}
    assert [(turn.steps, turn.loss) for turn in turns] == [(7, 8.0), (2, 10.0)]
    assert all(turn.seconds > 0 for turn in turns)
    if sys.platform == "linux":
        peaks = [ready.import_bytes or 0, *(turn.peak_bytes or 0 for turn in turns)]
        assert peaks == sorted(peaks)
        assert peaks[0] > 1_000_000


NO_PACKAGES = "REQUIRES = ()\n"
CANNOT_RUN = {
    "package": ("import no_such_package.part", Missing("no_such_package is not installed")),
    "compiler": (
        NO_PACKAGES
        + "from recombine.bench.setting import MissingRequirement\n"
        + "def make_stepper(setting): raise MissingRequirement('no compiler')",
        Missing("no compiler"),
    ),
    "ours": ("import recombine.no_such", Failed("No module named 'recombine.no_such'")),
    "raises": (
        NO_PACKAGES + "def make_stepper(setting): raise TypeError('so\\nand so')",
        Failed("TypeError: so and so"),
    ),
    "diverges": (
        NO_PACKAGES + "def make_stepper(setting): return lambda steps: float('nan')",
        Failed("ArithmeticError: the loss is nan"),
    ),
}


@pytest.mark.parametrize("case", CANNOT_RUN)
def test_one_that_cannot_run(case: str, module: Callable[[str], str]) -> None:
    text, expected = CANNOT_RUN[case]
    assert list(answers(iter([order(module(text))]))) == [Answer(expected)]


def test_one_that_fails_on_the_way(module: Callable[[str], str]) -> None:
    text = NO_PACKAGES + "def make_stepper(setting): return lambda steps: 1 / (3 - steps)"
    first, second, third = (answer.content for answer in answers(iter([order(module(text)), "2", "3", "4"])))
    assert isinstance(first, Ready)
    assert isinstance(second, Turn)
    assert second.loss == 1.0
    assert third == Failed("ZeroDivisionError: division by zero")
