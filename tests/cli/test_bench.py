"""`recombine bench` as its users run it, at sizes that take seconds."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from recombine.bench.result import Benchmark
from recombine.cli.main import main
from recombine.record.codec import decode, plain
from recombine.run.machine import available_cores

pytestmark = pytest.mark.slow


def bench(*arguments: str) -> tuple[Any, str]:
    command = [sys.executable, "-m", "recombine", "bench", "--preset", "smoke", "--steps", "1", "--threads", "1"]
    result = subprocess.run([*command, *arguments, "--json"], capture_output=True, text=True, check=True)
    return json.loads(result.stdout), result.stderr


def test_a_comparison(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    arguments = ["--lengths", "8", "--repeats", "2", "--contenders", "fast", "flax_linen", "--out", str(out)]
    found, progress = bench("--model", "transformer", *arguments)
    assert json.loads(out.read_text()) == found
    assert plain(decode(out.read_text(), Benchmark)) == found
    assert (found["preset"], found["threads"], found["steps"], found["repeats"]) == ("smoke", 1, 1, 2)
    assert found["environment"]["cores"] == available_cores()
    assert found["environment"]["identity"]["threads"] == 1
    assert found["environment"]["identity"]["device"]
    (comparison,) = found["comparisons"]
    assert (comparison["model"], comparison["length"]) == ("transformer", 8)
    contenders = comparison["contenders"]
    assert len(contenders["fast"]["episodes_per_second"]["all"]) == 2
    assert contenders["fast"]["versions"].keys() >= {"jax", "jaxlib"}
    assert contenders["fast"]["fraction_of_limit"] > 0
    assert comparison["limit"]["jax_matmul"]["shape"] == [128, 16, 64]
    if find_spec("flax") is None:
        assert contenders["flax_linen"] == {"status": "missing", "reason": "flax is not installed"}
    assert "transformer, N = 8: 12/12 turns" in progress


def test_cold_starts() -> None:
    found, _ = bench("--model", "hypertransformer", "--lengths", "--cold-start", "--repeats", "1")
    assert found["comparisons"] == []
    (row,) = found["cold_starts"]
    assert (row["model"], row["failures"]) == ("hypertransformer", [])
    assert len(row["seconds"]["empty"]["all"]) == len(row["seconds"]["filled"]["all"]) == 1


ERRORS = {
    "--contenders fats": "contenders = 'fats': one of plain, fast",
    "--lengths 1": "lengths = 1: an integer from 2",
    "--lengths": "lengths = (): at least one, or --scaling, or --cold-start",
    "--steps 0": "steps = 0: an integer from 1",
    "--steps 1025": "steps = 1025: an integer from 1 to 1024",
    "--repeats 0": "repeats = 0: an integer from 1",
    "--threads 100000": "threads = 100000: an integer from 1 to",
    "--out bench.txt": "out = 'bench.txt': the name must end in .json",
    "--figure scaling.svg": "figure = 'scaling.svg': it shows the scaling: add --scaling",
    "--scaling --figure scaling.gif": "figure = 'scaling.gif': the name must end in .png or .svg",
    "--model both-of-them": "both-of-them",
}


@pytest.mark.parametrize("arguments", ERRORS)
def test_errors_in_one_line(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments.split()]) == 2
    said = capsys.readouterr().err
    assert ERRORS[arguments] in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--help"], ["--contenders", "fats"], ["--out", "bench.txt"]], ids=" ".join)
def test_jax_is_not_imported_before_it_is_needed(arguments: list[str]) -> None:
    code = (
        "import sys, recombine.cli.main\n"
        "try: recombine.cli.main.main(['bench', *sys.argv[1:]])\n"
        "except SystemExit: pass\n"
        "print(sorted({'jax', 'equinox', 'altair', 'scipy', 'torch'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"
