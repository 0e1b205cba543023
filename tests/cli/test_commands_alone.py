"""eval, report, bench and the jobs of commands, each alone; models that print."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import recombine.terminal.jobs
from recombine.bench.result import Benchmark
from recombine.cli.eval import _one_run
from recombine.cli.jobs import execute_jobs
from recombine.cli.main import main
from recombine.cli.report import default_report
from recombine.config.toml import write_toml
from recombine.jobs.plan import jobs_to_do
from recombine.jobs.protocol import Job, JobEvent, JobPart, News
from recombine.record.codec import decode, encode, plain
from recombine.run.machine import available_cores
from recombine.run.process import python_command
from recombine.run.signals import StopSignal
from recombine.storage.archive import write_archive
from tests.reliability.small_run import small_config, write_model
from tests.study.studies import make_row


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with an archive of two runs in it and in a directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept").mkdir()
    for path in ("two.zip", "kept/two.zip"):
        write_archive(Path(path), {f"seed{seed}/config.toml": b"" for seed in (0, 1)})
    return tmp_path


@pytest.mark.parametrize(("path", "names"), [("two.zip", "seed0, seed1"), ("kept", "two.zip/seed0, two.zip/seed1")])
def test_an_archive_of_several_runs_is_one_line(
    place: Path, path: str, names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error lists the names of the runs, for relative and absolute paths."""
    for given in (path, str(place / path)):
        assert main(["eval", given]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert names in error


def test_a_run_of_an_archive_goes_by_the_path_that_was_given(place: Path) -> None:
    assert _one_run(Path("two.zip/seed1")).path == Path("two.zip/seed1")
    assert _one_run(place / "two.zip" / "seed1").path == place / "two.zip" / "seed1"


def test_the_only_run_of_an_archive_need_not_be_named(place: Path) -> None:
    write_archive(Path("one.zip"), {"seed0/config.toml": b""})
    assert _one_run(Path("one.zip")).path == Path("one.zip/seed0")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """An archive with an unreadable run: reading it raises an error about its configuration."""
    write_archive(tmp_path / "x.zip", {"run/config.toml": b"["})
    return tmp_path / "x.zip"


def test_by_default_the_page_is_in_the_directory_or_beside_the_archive(archive: Path) -> None:
    assert default_report(archive) == archive.parent / "report"
    assert default_report(archive / "run") == archive.parent / "report"
    assert default_report(archive.parent) == archive.parent / "report"


@pytest.mark.parametrize("place", ["x.zip/report", "x.zip", "x.zip/a/b", "a\0b"])
def test_a_place_that_cannot_be_written_is_refused_before_a_run_is_read(
    archive: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(archive), "--out", str(archive.parent / place)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("recombine: out = ")
    assert error.count("\n") == 1


@dataclass(frozen=True)
class Nowhere:
    """An executor that does nothing."""

    vmap: int
    at_a_time: int | None = 1

    def execute(self, *_: Any) -> Iterator[JobEvent]:
        return iter(())


@pytest.mark.parametrize("vmap", [1, 2, 3])
def test_runs_that_are_still_to_be_done_are_not_the_best_before(
    tmp_path: Path, vmap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest scores of unfinished runs are not final, also if one program trains several runs."""
    wanted = {f"seed{seed}": small_config(seed=seed) for seed in range(3)}
    for seed, (name, config) in enumerate(wanted.items()):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_text(write_toml(config))
        (tmp_path / name / "metrics.jsonl").write_text(
            encode(make_row("transformer", "connected+", seed, 4, 0.5)) + "\n"
        )
    shown = []

    class Display(recombine.terminal.jobs.JobsDisplay):
        def __exit__(self, *arguments: Any) -> None:
            shown.append(self.best)

    monkeypatch.setattr(recombine.terminal.jobs, "JobsDisplay", Display)
    jobs = [job for job in jobs_to_do(wanted, tmp_path, []) if job.kind == "train"]
    where: Any = Nowhere(vmap)
    execute_jobs(jobs, where, tmp_path, wanted, StopSignal())
    execute_jobs(jobs[:1], where, tmp_path, wanted, StopSignal())
    assert shown[0] is None
    assert shown[1] is not None
    assert shown[1][1] in ("seed1", "seed2")


def bench(*arguments: str) -> tuple[Any, str]:
    command = [sys.executable, "-m", "recombine", "bench", "--preset", "smoke", "--steps", "1", "--threads", "1"]
    result = subprocess.run([*command, *arguments, "--json"], capture_output=True, text=True, check=True)
    return json.loads(result.stdout), result.stderr


@pytest.mark.slow
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


@pytest.mark.slow
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
    "--model transformer --contenders explicit_1": "contenders = 'explicit_1': only the hypertransformer",
    "--out bench.txt": "out = 'bench.txt': the name must end in .json",
    "--figure scaling.svg": "figure = 'scaling.svg': it shows the scaling: add --scaling",
    "--scaling --figure scaling.gif": "figure = 'scaling.gif': the name must end in .png or .svg",
    "--model both-of-them": "both-of-them",
}


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ERRORS)
def test_errors_in_one_line(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments.split()]) == 2
    said = capsys.readouterr().err
    assert ERRORS[arguments] in said
    assert said.count("\n") == 1


@pytest.mark.slow
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


NOISE = """
import atexit
import ctypes
import os
import subprocess
import sys

kept = sys.stdout


def noise(when):
    print("NOISE print", when)
    sys.stdout.write(f"NOISE write {when}")
    sys.__stdout__.write("NOISE __stdout__")
    kept.write("NOISE kept")
    os.write(1, b"NOISE descriptor")
    subprocess.run(["echo", "NOISE", "child"], check=True)
    ctypes.CDLL(None).printf(b"NOISE of C")  # which is written when the process ends


noise("import")
atexit.register(noise, "exit")
"""
SMALL = ["measure.episodes=16", "optimizer.num_steps=8"]


@pytest.fixture
def noisy(tmp_path: Path) -> str:
    on_call = "noise('call'); jax.debug.print('NOISE while it runs {}', self.scale)"
    return write_model(tmp_path, "noisy", NOISE, "noise('build')", on_call)


def run(directory: Path, *arguments: str) -> str:
    """What a command prints on stdout; and all the noise, of every kind, is on stderr."""
    command = [sys.executable, "-m", "recombine", *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True)
    assert "NOISE" not in done.stdout
    for kind in ("print import", "write exit", "__stdout__", "kept", "descriptor", "child", "of C"):
        assert f"NOISE {kind}" in done.stderr
    return done.stdout


def test_json_of_a_command_can_be_parsed(tmp_path: Path, noisy: str) -> None:
    train = ["train", "--model", noisy, "--preset", "smoke", "--out", "run", "--set", *SMALL]
    assert json.loads(run(tmp_path, *train, "--json"))["step"] == 8


@pytest.mark.slow
def test_the_lines_of_a_worker_are_news(tmp_path: Path, noisy: str) -> None:
    from recombine.config.preset import preset_config
    from recombine.config.toml import override, parse_changes, write_toml

    config = override(preset_config("smoke", noisy), parse_changes(SMALL))
    part = JobPart(write_toml(config), str(tmp_path / "run"))
    job = Job(name="run", kind="train", parts=(part,), custom=noisy)
    news, noise = [], tmp_path / "noise"
    with (
        noise.open("w") as file,
        subprocess.Popen(
            python_command("recombine.jobs.worker"),
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        ) as worker,
    ):
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(f"{encode(job)}\n")
        worker.stdin.flush()
        for line in worker.stdout:
            news.append(decode(line, News))
            if news[-1].kind in ("done", "failed"):
                worker.stdin.close()
    assert news[-1].kind == "done"
    assert "NOISE print call" in noise.read_text()


def test_help_is_on_stdout() -> None:
    done = subprocess.run([sys.executable, "-m", "recombine", "train", "--help"], capture_output=True, text=True)
    assert "--model" in done.stdout
    assert not done.stderr


def test_a_command_inside_python_leaves_its_stdout_alone(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["task", "show", "--json"]) == 0
    os.write(1, b"after\n")
    assert capfd.readouterr().out.endswith("after\n")


def test_a_closed_stderr_is_no_error() -> None:
    command = [sys.executable, "-m", "recombine", "task", "show", "--json"]
    done = subprocess.run(["/bin/sh", "-c", '"$@" 2>&-', "sh", *command], stdout=subprocess.PIPE, check=True)
    assert json.loads(done.stdout)["masks"]
