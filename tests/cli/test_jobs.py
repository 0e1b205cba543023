"""The progress that `reproduce` and `sweep` show."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import recombine.terminal.jobs
from recombine.cli.jobs import execute_jobs
from recombine.config.toml import write_toml
from recombine.jobs.plan import jobs_to_do
from recombine.jobs.protocol import JobEvent
from recombine.record.codec import encode
from recombine.run.signals import StopSignal
from tests.reliability.small_run import small_config
from tests.study.studies import make_row


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
