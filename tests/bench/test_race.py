"""A race of contenders, and what is compared."""

from pathlib import Path

import pytest
from msgspec import UNSET

from recombine.bench.compare import sum_up
from recombine.bench.contender_process import Contestant
from recombine.bench.message import Failed, Missing, Ready, Turn
from recombine.bench.race import RaceResult, race
from recombine.bench.result import Comparison, FailedLimit, MeasuredContender, MissingLimit, Spread
from recombine.bench.setting import MatmulSetting
from recombine.config.preset import preset_config
from recombine.record.codec import decode, encode, plain
from recombine.terminal.bench_tables import print_comparison
from recombine.train.flops import step_flops

CONTENDER = """
import os, threading
from recombine.bench.setting import MissingRequirement

REQUIRES = ()
NAME, LOG, FATE = (os.environ[f"CONTENDER_{variable}"] for variable in ("NAME", "LOG", "FATE"))

def make_stepper(setting):
    if FATE == "missing":
        raise MissingRequirement("no such thing here")
    calls = []
    def run(num_steps):
        with open(LOG, "a") as log:
            log.write(f"{NAME} begins {num_steps}\\n")
        calls.append(num_steps)
        if len(calls) == 3:  # the first step, the warm-up, and the first round
            match FATE:
                case "fails": raise ValueError("of no use")
                case "dies": os.write(2, b"the last word\\n"), os._exit(3)
                case "hangs": threading.Event().wait()
        with open(LOG, "a") as log:
            log.write(f"{NAME} ends {num_steps}\\n")
        return 0.5
    return run
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "fake_contender.py").write_text(CONTENDER)
    return tmp_path


def entry(directory: Path, name: str, processes: int = 1, fate: str = "") -> Contestant:
    environment = {
        "PYTHONPATH": str(directory),
        "CONTENDER_NAME": name,
        "CONTENDER_LOG": str(directory / "log"),
        "CONTENDER_FATE": fate,
    }
    return Contestant(name, "fake_contender", MatmulSetting("numpy", 1, 1, 1, 1), environment, processes)


def log(directory: Path) -> list[str]:
    return (directory / "log").read_text().splitlines()


def turns(*order: tuple[str, int]) -> list[str]:
    """The log of contenders that run one at a time: each ends before the next begins."""
    return [f"{name} {event} {steps}" for name, steps in order for event in ("begins", "ends")]


def test_they_take_turns(directory: Path) -> None:
    reports: list[str] = []
    results = race([entry(directory, name) for name in "abc"], steps=7, repeats=2, report=reports.append)
    starts = [(name, steps) for name in "abc" for steps in (1, 7)]
    assert log(directory) == turns(*starts, *[(name, 7) for name in "abcabc"])
    assert [len(result.rounds) for result in results.values()] == [2, 2, 2]
    assert all(result.finished and result.start_seconds for result in results.values())
    assert [turn.steps for result in results.values() for (turn,) in result.rounds] == [7] * 6
    assert len(reports) == 3 * (1 + 2)


def test_a_contender_of_several_processes(directory: Path) -> None:
    results = race([entry(directory, "pair", processes=2), entry(directory, "single")], steps=5, repeats=2)
    assert [[len(turns) for turns in result.rounds] for result in results.values()] == [[2, 2], [1, 1]]
    assert len(results["pair"].ready) == 2
    assert sorted(log(directory)[-6:-2]) == ["pair begins 5"] * 2 + ["pair ends 5"] * 2
    assert log(directory)[-2:] == ["single begins 5", "single ends 5"]


def test_those_that_do_not_finish(directory: Path) -> None:
    fates = ["missing", "fails", "dies"]
    entries = [*(entry(directory, fate, fate=fate) for fate in fates), entry(directory, "good")]
    reports: list[str] = []
    results = race(entries, steps=2, repeats=2, report=reports.append)
    assert results["missing"].out == Missing("no such thing here")
    assert results["fails"].out == Failed("ValueError: of no use")
    assert results["dies"].out == Failed("ended with code 3: the last word")
    assert results["good"].finished
    assert len(results["good"].rounds) == 2
    assert log(directory)[-2:] == turns(("good", 2))
    assert len(reports) == 4 * (1 + 2)


def test_one_that_hangs_is_ended(directory: Path) -> None:
    entries = [entry(directory, "hangs", fate="hangs"), entry(directory, "good")]
    results = race(entries, steps=2, repeats=1, seconds_to_answer=2.0)
    assert results["hangs"].out == Failed("no answer within 2 seconds")
    assert results["good"].finished


def test_one_that_never_starts(directory: Path) -> None:
    (directory / "fake_contender.py").write_text("import threading\nthreading.Event().wait()")
    results = race([entry(directory, "hangs")], steps=2, repeats=1, seconds_to_start=1.0)
    assert results["hangs"].out == Failed("no answer within 1 seconds")


READY = Ready({"x": "1"}, import_seconds=1.0, setup_seconds=2.0, first_step_seconds=3.0, import_bytes=100)
CONFIG = preset_config("paper", "transformer")  # batches of 128


LIMITS = {name: MatmulSetting("numpy", 10, 10, 10, products=5) for name in ("numpy_matmul", "jax_matmul")}


def result(name: str, *rounds: tuple[float, ...]) -> RaceResult:
    """The result of ten steps per round. Each round gives the seconds of every process."""
    turns = tuple(tuple(Turn(10, seconds, loss=0.1, peak_bytes=1000) for seconds in row) for row in rounds)
    return RaceResult(name, (READY,) * len(rounds[0]), 6.0, turns)


def summed() -> Comparison:
    results = [
        result("numpy_matmul", (1.0,), (1.0,), (2.0,)),
        result("jax_matmul", (10.0,), (10.0,), (10.0,)),
        result("plain", (4.0,), (8.0,), (5.0,)),
        result("fast", (1.0,), (4.0,), (1.0,)),  # 4, 2 and 5 times as fast as plain
        result("explicit_1", (2.0,), (5.0,), (4.0,)),  # 1/2, 4/5 and 1/4 times as fast as fast
        result("fast_single", (2.0,), (2.0,), (2.0,)),
        result("fast_pair", (2.0, 2.0), (2.0, 4.0), (2.5, 2.0)),
        result("torch_eager", (3.0,), (3.0,), (3.0,)),
        result("flax_linen", (2.0,), (2.0,), (40.0,)),
        RaceResult("gpt2", out=Missing("transformers is not installed")),
        RaceResult("torch_compiled", out=Failed("of no use")),
    ]
    return sum_up(CONFIG, {row.name: row for row in results}, LIMITS)


def measured(comparison: Comparison, name: str) -> MeasuredContender:
    return comparison.measured()[name]


def test_medians_and_ratios() -> None:
    summary = summed()
    plain_row, fast = measured(summary, "plain"), measured(summary, "fast")
    assert (summary.model, summary.length, summary.batch_size) == ("transformer", 32, 128)
    assert plain_row.episodes_per_second == Spread(median=256.0, least=160.0, most=320.0, all=(320.0, 160.0, 256.0))
    assert fast.times_plain == 4.0  # the median of the rounds' ratios; the ratio of the medians would be 5
    assert summary.fastest_peer == "flax_linen"
    assert fast.times_fastest_peer == 2.0
    assert fast.times_peers == {"flax_linen": 2.0, "torch_eager": 3.0}
    assert measured(summary, "torch_eager").times_fastest_peer == pytest.approx(2 / 3)
    assert measured(summary, "flax_linen").times_fastest_peer == 1.0


def test_many_runs_at_once_have_no_ratio_to_a_single_run() -> None:
    pair, single = (measured(summed(), name) for name in ("fast_pair", "fast_single"))
    assert pair.episodes_per_second.all == (1280.0, 960.0, 1152.0)
    assert (pair.processes, pair.times_one_process) == (2, 1.8)
    assert (pair.peak_bytes, pair.import_bytes, single.peak_bytes) == (2000, 200, 1000)
    assert pair.times_plain is UNSET
    assert single.times_fastest_peer is UNSET


def test_explicit_inference_is_compared_with_fast() -> None:
    explicit = measured(summed(), "explicit_1")
    assert explicit.times_fast == 0.5
    assert explicit.times_plain is UNSET
    assert measured(sum_up(CONFIG, {"explicit_1": result("explicit_1", (1.0,))}, {}), "explicit_1").times_fast is None


def test_the_limit_of_the_machine() -> None:
    summary = summed()
    limit = summary.limit.measured()["numpy_matmul"]
    assert summary.limit.name == "numpy_matmul"
    assert limit.flops_per_second.median == 10 * 5 * 2 * 2 * 10**3
    assert limit.shape == (10, 10, 10)
    # Ten steps in 1, 4 and 1 seconds, where the limit's ten steps take 1, 1 and 2: the median ratio is 1.
    expected = step_flops(CONFIG) / (5 * 2 * 2 * 10**3)
    assert measured(summary, "fast").fraction_of_limit == pytest.approx(expected)
    assert measured(summary, "plain").fraction_of_limit is None


def test_missing_and_failed_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    summary = summed()
    assert summary.contenders["gpt2"] == Missing("transformers is not installed")
    assert summary.contenders["torch_compiled"] == Failed("of no use")
    print_comparison(summary)
    printed = capsys.readouterr().out
    assert "gpt2 is missing: transformers is not installed" in printed
    assert "torch_compiled failed: of no use" in printed
    assert "fast_pair: 2 single-threaded runs at once, 1.80 × one alone" in printed
    assert "explicit_1: explicit inference, 0.50 × fast, +0 MB" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_without_peers_and_without_a_limit() -> None:
    summary = sum_up(CONFIG, {"fast": result("fast", (1.0,))}, {})
    assert summary.fastest_peer is None
    assert measured(summary, "fast").times_fastest_peer is None
    assert measured(summary, "fast").times_plain is None
    assert plain(summary.limit) == {"name": None}


def test_limits_that_are_out() -> None:
    outs = {"numpy_matmul": Missing("no numpy"), "jax_matmul": Failed("no luck")}
    results = {name: RaceResult(name, out=out) for name, out in outs.items()}
    summary = sum_up(CONFIG, {**results, "fast": result("fast", (1.0,))}, LIMITS)
    shape = (10, 10, 10)
    assert summary.limit.numpy_matmul == MissingLimit("no numpy", shape)
    assert summary.limit.jax_matmul == FailedLimit("no luck", shape)
    expected = {"status": "failed", "reason": "no luck", "shape": [10, 10, 10], "flops_per_second": None}
    assert plain(summary.limit)["jax_matmul"] == expected
    assert measured(summary, "fast").fraction_of_limit is None


KEYS = [
    *("status", "peak_bytes", "import_bytes", "import_seconds", "setup_seconds", "first_step_seconds"),
    *("last_loss", "versions", "episodes_per_second"),
]
MORE_KEYS = {
    "plain": ["times_plain", "times_fastest_peer", "times_peers"],
    "fast": ["times_plain", "times_fastest_peer", "times_peers", "fraction_of_limit"],
    "explicit_1": ["times_fast"],
    "fast_single": [],
    "fast_pair": ["processes", "times_one_process", "fraction_of_limit"],
    "torch_eager": ["times_plain", "times_fastest_peer"],
}


def test_the_json_has_the_keys_that_apply() -> None:
    summary = summed()
    assert decode(encode(summary), Comparison) == summary
    rows = plain(summary)["contenders"]
    for name, more in MORE_KEYS.items():
        assert list(rows[name]) == KEYS + more
    assert rows["gpt2"] == {"status": "missing", "reason": "transformers is not installed"}
    alone = plain(sum_up(CONFIG, {"fast": result("fast", (1.0,))}, {}))["contenders"]["fast"]
    assert (alone["times_plain"], alone["times_fastest_peer"], alone["times_peers"]) == (None, None, {})
