"""Medians and ratios, from made-up timings."""

from typing import Any

import pytest

from recombine.bench.compare import sum_up
from recombine.bench.matmul import Job as MatmulJob
from recombine.bench.race import Result
from recombine.config.preset import preset_config
from recombine.terminal.bench_tables import print_comparison
from recombine.train.flops import step_flops

READY = {"versions": {"x": "1"}, "import_seconds": 1.0, "setup_seconds": 2.0, "first_step_seconds": 3.0}
CONFIG = preset_config("paper", "transformer")  # batches of 128


def result(name: str, *rounds: tuple[float, ...]) -> Result:
    """Of ten steps a round, in so many seconds; a number for each process."""
    turns = [[{"steps": 10, "seconds": seconds, "loss": 0.1, "peak_bytes": 1000} for seconds in row] for row in rounds]
    return Result(name, [{**READY, "import_bytes": 100}] * len(rounds[0]), 6.0, turns)


def summed() -> dict[str, Any]:
    results = [
        result("numpy_matmul", (1.0,), (1.0,), (2.0,)),
        result("jax_matmul", (10.0,), (10.0,), (10.0,)),
        result("plain", (4.0,), (8.0,), (5.0,)),
        result("fast", (1.0,), (4.0,), (1.0,)),  # 4, 2 and 5 times as fast as plain
        result("fast_single", (2.0,), (2.0,), (2.0,)),
        result("fast_pair", (2.0, 2.0), (2.0, 4.0), (2.5, 2.0)),
        result("torch_eager", (3.0,), (3.0,), (3.0,)),
        result("flax_linen", (2.0,), (2.0,), (40.0,)),
        Result("gpt2", missing="transformers is not installed"),
        Result("torch_compiled", failed="of no use"),
    ]
    limits = {name: MatmulJob("numpy", 10, 10, 10, products=5) for name in ("numpy_matmul", "jax_matmul")}
    return sum_up(CONFIG, {row.name: row for row in results}, limits)


def test_medians_and_ratios() -> None:
    summary = summed()
    contenders = summary["contenders"]
    assert (summary["model"], summary["length"], summary["batch_size"]) == ("transformer", 32, 128)
    assert contenders["plain"]["episodes_per_second"] == {
        "median": 256.0,
        "least": 160.0,
        "most": 320.0,
        "all": [320.0, 160.0, 256.0],
    }
    assert contenders["fast"]["times_plain"] == 4.0  # the rounds' median ratio; the ratio of medians would be 5
    assert summary["fastest_peer"] == "flax_linen"
    assert contenders["fast"]["times_fastest_peer"] == 2.0
    assert contenders["fast"]["times_peers"] == {"flax_linen": 2.0, "torch_eager": 3.0}
    assert contenders["torch_eager"]["times_fastest_peer"] == pytest.approx(2 / 3)
    assert contenders["flax_linen"]["times_fastest_peer"] == 1.0


def test_many_runs_at_once_are_a_matter_of_their_own() -> None:
    pair, single = (summed()["contenders"][name] for name in ("fast_pair", "fast_single"))
    assert pair["episodes_per_second"]["all"] == [1280.0, 960.0, 1152.0]
    assert (pair["processes"], pair["times_one_process"]) == (2, 1.8)
    assert (pair["peak_bytes"], pair["import_bytes"], single["peak_bytes"]) == (2000, 200, 1000)
    assert "times_plain" not in pair
    assert "times_fastest_peer" not in single


def test_the_machines_limit() -> None:
    summary = summed()
    assert summary["limit"]["name"] == "numpy_matmul"
    assert summary["limit"]["numpy_matmul"]["flops_per_second"]["median"] == 10 * 5 * 2 * 2 * 10**3
    assert summary["limit"]["numpy_matmul"]["shape"] == [10, 10, 10]
    # Ten steps in 1, 4 and 1 seconds, where the limit's ten steps take 1, 1 and 2: the median ratio is 1.
    expected = step_flops(CONFIG) / (5 * 2 * 2 * 10**3)
    assert summary["contenders"]["fast"]["fraction_of_limit"] == pytest.approx(expected)
    assert "fraction_of_limit" not in summary["contenders"]["plain"]


def test_missing_and_failed_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    summary = summed()
    assert summary["contenders"]["gpt2"] == {"status": "missing", "reason": "transformers is not installed"}
    assert summary["contenders"]["torch_compiled"] == {"status": "failed", "reason": "of no use"}
    print_comparison(summary)
    printed = capsys.readouterr().out
    assert "gpt2 is missing: transformers is not installed" in printed
    assert "torch_compiled failed: of no use" in printed
    assert "fast_pair: 2 single-threaded runs at once, 1.80 × one alone" in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_without_peers_and_without_a_limit() -> None:
    summary = sum_up(CONFIG, {"fast": result("fast", (1.0,))}, {})
    assert summary["fastest_peer"] is None
    assert summary["contenders"]["fast"]["times_fastest_peer"] is None
    assert summary["contenders"]["fast"]["times_plain"] is None
