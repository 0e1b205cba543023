"""Training again from their configurations reproduces the runs in evidence/."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

EVIDENCE = Path(__file__).parents[1] / "evidence"


class StoredFiles(NamedTuple):
    """A run in an archive, read by the standard library alone."""

    archive: str
    run: str

    def read(self, name: str) -> str:
        with zipfile.ZipFile(EVIDENCE / self.archive) as archive:
            return archive.read(f"{self.run}/{name}").decode()


@pytest.mark.parametrize(
    ("model", "steps"),
    [
        ("hypertransformer", 250),
        *(pytest.param(model, 1000, marks=pytest.mark.slow) for model in ("transformer", "hypertransformer")),
    ],
)
def test_a_run_again_from_its_configuration(tmp_path: Path, model: str, steps: int) -> None:
    """The numbers agree on any machine; the bits agree on the kind of machine that made the run."""
    made = [StoredFiles(archive, f"{model}-connected+-seed0") for archive in ("quick/seed0.zip", "machine.zip")]
    assert made[0].read("config.toml") == made[1].read("config.toml")
    (config := tmp_path / "config.toml").write_text(made[0].read("config.toml"))
    command = [sys.executable, "-m", "recombine", "train", "--config", str(config), "--threads", "1"]
    again = [*command, "--out", str(tmp_path / "again"), "--stop-at", str(steps)]
    subprocess.run(again, check=True, capture_output=True, timeout=600, env=os.environ | {"XLA_FLAGS": ""})
    found = (tmp_path / "again" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(found[-1])["step"] == steps
    committed = [run.read("metrics.jsonl").splitlines()[: len(found)] for run in made]
    for rows in committed:
        assert scores(found) == pytest.approx(scores(rows), abs=1e-4)
    here = identity((tmp_path / "again" / "env.json").read_text())
    alike = [rows for run, rows in zip(made, committed, strict=True) if identity(run.read("env.json")) == here]
    for rows in alike:
        assert found == rows, "other bits, on the kind of machine that made the run"
    if not alike:
        differs = [{k: (v, here[k]) for k, v in identity(run.read("env.json")).items() if v != here[k]} for run in made]
        pytest.skip(f"the same numbers; made on other kinds of machine, whose last bits differ: {differs}")


def test_a_run_on_two_kinds_of_machine() -> None:
    """As the docs say, the scores agree up to last digits until the end of training."""
    for model in ("transformer", "hypertransformer"):
        name = f"{model}-connected+-seed0"
        one, other = StoredFiles("quick/seed0.zip", name), StoredFiles("machine.zip", name)
        assert identity(one.read("env.json"))["features"] != identity(other.read("env.json"))["features"]
        rows, again = (run.read("metrics.jsonl").splitlines() for run in (one, other))
        assert json.loads(rows[-1])["step"] == 10_000
        assert scores(rows) == pytest.approx(scores(again), abs=1e-6)
        assert rows != again


def scores(rows: list[str]) -> list[float]:
    return [json.loads(row)[split]["r2"] for row in rows for split in ("in_dist", "ood")]


def identity(env: str) -> dict[str, Any]:
    """Everything that affects the bits of a run."""
    return json.loads(env)["starts"][0]["identity"]
