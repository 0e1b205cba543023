"""Several runs in one vmapped program: each equals the same run alone, up to last bits."""

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import numpy as np
import pytest

from recombine.config.schema import Config
from recombine.config.toml import write_toml
from recombine.errors import InputError
from recombine.jobs.execute import execute_job
from recombine.jobs.plan import jobs_to_do, put_together
from recombine.jobs.protocol import Job, JobPart
from recombine.measure.snapshot import measure_parts
from recombine.run import training, vmapped
from recombine.run.load import load_model
from recombine.run.signals import StopSignal
from recombine.run.training import RunOptions, execute_run
from recombine.run.vmapped import execute_vmapped
from recombine.train.loop import NonFiniteLoss, train_vmapped
from tests.reliability.small_run import finish, small_config


def configs(**changes) -> list[Config]:
    """Two seeds, and another support."""
    return [
        small_config(seed=0, **changes),
        small_config(seed=1, **changes),
        small_config(seed=1, task={"support": "disconnected"}, **changes),
    ]


def paths(place: Path) -> list[Path]:
    return [place / name for name in ("a", "b", "c")]


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def state(path: Path) -> str:
    return json.loads((path / "status.json").read_text())["state"]


def assert_as_alone(path: Path, alone: Path) -> None:
    assert state(path) == "done"
    assert [row["step"] for row in rows(path)] == [row["step"] for row in rows(alone)]
    for row, other in zip(rows(path)[1:], rows(alone)[1:], strict=True):
        np.testing.assert_allclose(row["loss"], other["loss"], rtol=1e-4)
        np.testing.assert_allclose(row["ood"]["r2"], other["ood"]["r2"], rtol=1e-3, atol=1e-4)


def test_each_as_it_is_alone(tmp_path: Path) -> None:
    list(execute_vmapped(configs(), paths(tmp_path / "together")))
    for config, path, alone in zip(configs(), paths(tmp_path / "together"), paths(tmp_path / "alone"), strict=True):
        finish(alone, config)
        assert_as_alone(path, alone)
    assert len({rows(path)[-1]["loss"] for path in paths(tmp_path / "together")}) == 3, "they are not one run"
    assert load_model(tmp_path / "together" / "b").config.seed == 1


@pytest.mark.slow
def test_they_go_on_where_they_were_left_though_one_is_behind(tmp_path: Path) -> None:
    """This happens after a crash between the saves of two of them."""
    place, stop = tmp_path / "together", StopSignal()
    every = configs(optimizer={"num_steps": 600})
    for progress in execute_vmapped(every, paths(place), stop=stop):
        if progress.step > 200:
            stop.signum = signal.SIGTERM
    assert {state(path) for path in paths(place)} == {"interrupted"}
    one = rows(place / "b")
    (place / "b").rename(tmp_path / "old")
    list(execute_run(every[1], place / "b", RunOptions(stop_at=100)))
    assert len(rows(place / "b")) < len(one)
    said: list[str] = []
    list(execute_vmapped(every, paths(place), say=said.append))
    assert "resuming at step 100" in said
    for config, path, alone in zip(every, paths(place), paths(tmp_path / "alone"), strict=True):
        finish(alone, config)
        assert_as_alone(path, alone)


@pytest.mark.slow
def test_those_that_are_behind_catch_up_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds are added to a run that is done and to one that is half-way. No run passes the common last step."""
    finish(tmp_path / "a", configs()[0])
    finish(tmp_path / "b", configs()[1], stop_at=8)
    more = [*configs(), small_config(seed=2)]
    programs = []

    def seen(config, seeds, tasks, states, step, every, last):
        programs.append((list(seeds), step, last))
        return train_vmapped(config, seeds, tasks, states, step, every, last)

    monkeypatch.setattr(vmapped, "train_vmapped", seen)
    list(execute_vmapped(more, [*paths(tmp_path), tmp_path / "d"], RunOptions(stop_at=6)))
    assert programs == [([1, 2], 0, 6)]
    assert [rows(tmp_path / name)[-1]["step"] for name in "abcd"] == [12, 8, 4, 4]
    list(execute_vmapped(more, [*paths(tmp_path), tmp_path / "d"]))
    assert programs[1:] == [([1, 2], 6, 8), ([1, 1, 2], 8, 12)]
    for name, config in zip("abcd", more, strict=True):
        finish(tmp_path / "alone" / name, config)
        assert_as_alone(tmp_path / name, tmp_path / "alone" / name)


def test_measuring_another_is_not_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in one program record the same training time, however long each is measured."""

    def slowly(*args):
        time.sleep(0.2)
        return measure_parts(*args)

    monkeypatch.setattr(training, "measure_parts", slowly)
    list(execute_vmapped(configs(), paths(tmp_path)))
    rows = [[json.loads(line) for line in (p / "timing.jsonl").read_text().splitlines()] for p in paths(tmp_path)]
    trained = [sum(row["seconds"]["train"] + row["seconds"]["compile"] for row in of_one) for of_one in rows]
    assert max(trained) - min(trained) < 0.1
    assert all(row["seconds"]["measure"] > 0.2 for of_one in rows for row in of_one)


def test_while_they_compile_all_can_be_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process exits at once, even if one run is behind: nothing is lost, and each records the interruption."""
    finish(tmp_path / "a", configs()[0], stop_at=4)
    seen = []

    class Asked(StopSignal):
        @contextmanager
        def exit_allowed(self, on_exit: Callable[[], None]) -> Iterator[None]:
            self.on_exit = on_exit
            yield
            del self.on_exit

    stop = Asked()

    def compiling(*args):
        stop.on_exit()
        seen.append([state(path) for path in paths(tmp_path)])
        yield from train_vmapped(*args)

    monkeypatch.setattr(vmapped, "train_vmapped", compiling)
    list(execute_vmapped(configs(), paths(tmp_path), stop=stop))
    assert seen == [["interrupted"] * 3] * 2
    assert [state(path) for path in paths(tmp_path)] == ["done"] * 3


def test_one_that_diverges_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run is made to diverge by parameters that are not finite."""

    def spoiled(config, seeds, tasks, states, *rest):
        bad = eqx.tree_at(lambda state: state.model.readout.weight, states[1], replace_fn=lambda w: w * np.nan)
        return train_vmapped(config, seeds, tasks, [states[0], bad, states[2]], *rest)

    monkeypatch.setattr(vmapped, "train_vmapped", spoiled)
    with pytest.raises(NonFiniteLoss, match="1 of 3 runs diverged: b"):
        list(execute_vmapped(configs(), paths(tmp_path)))
    assert [state(path) for path in paths(tmp_path)] == ["done", "failed", "done"]
    assert rows(tmp_path / "a")[-1]["step"] == 12
    assert rows(tmp_path / "b")[-1]["step"] == 0


def test_one_shape(tmp_path: Path) -> None:
    wide = small_config(model={"embed_dim": 8})
    with pytest.raises(InputError, match="one shape"):
        list(execute_vmapped([small_config(), wide], [tmp_path / "a", tmp_path / "b"]))
    assert not (tmp_path / "a").exists()


@pytest.mark.slow
def test_alone_and_together_by_turns(tmp_path: Path) -> None:
    """This happens when a sweep grows by seeds. Each start records the number of runs in the program."""
    list(execute_vmapped(configs(), paths(tmp_path), RunOptions(stop_at=4)))
    finish(tmp_path / "a", configs()[0], stop_at=8)
    list(execute_vmapped(configs(), paths(tmp_path)))
    starts = json.loads((tmp_path / "a" / "env.json").read_text())["starts"]
    assert [start["identity"].get("together", 1) for start in starts] == [3, 1, 3]
    assert state(tmp_path / "a") == "done"


def test_all_diverge(tmp_path: Path) -> None:
    """All diverge at the same step: none is behind another, and none is done."""
    wild = [small_config(seed=seed, optimizer={"learning_rate": 1e20}) for seed in (0, 1)]
    with pytest.raises(NonFiniteLoss, match="2 of 2 runs diverged: a, b"):
        list(execute_vmapped(wild, paths(tmp_path)[:2]))
    assert [state(path) for path in paths(tmp_path)[:2]] == ["failed", "failed"]


def test_what_is_done_stays_done_and_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds even if one of them diverges and is tried again."""

    def spoiled(config, seeds, tasks, states, *rest):
        bad = eqx.tree_at(lambda state: state.model.readout.weight, states[1], replace_fn=lambda w: w * np.nan)
        return train_vmapped(config, seeds, tasks, [states[0], bad, *states[2:]], *rest)

    monkeypatch.setattr(vmapped, "train_vmapped", spoiled)
    parts = tuple(JobPart(write_toml(c), str(p)) for c, p in zip(configs(), paths(tmp_path), strict=True))
    job = Job(name="three", kind="train", parts=parts, after=("selection",))
    with pytest.raises(NonFiniteLoss):
        execute_job(job, StopSignal(), lambda news: None)
    assert [state(path) for path in paths(tmp_path)] == ["done", "failed", "done"]
    assert [(path / "selection.json").exists() for path in paths(tmp_path)] == [True, False, True]


def test_which_jobs_go_together(tmp_path: Path) -> None:
    small, wide = small_config(), small_config(model={"embed_dim": 8})
    wanted = {f"{name}{seed}": replace(c, seed=seed) for seed in range(3) for name, c in (("s", small), ("w", wide))}
    jobs = jobs_to_do(wanted, tmp_path, ["selection"])
    found = put_together(jobs, wanted, 2)
    groups = [[Path(part.path).name for part in job.parts] for job in found]
    assert [group for group in groups if len(group) > 1] == [["s0", "s1"], ["w0", "w1"]]
    assert [job.name for job in found if job.kind == "train"] == [
        "s0 and 1 more",
        "w0 and 1 more",
        "s2",
        "w2",
    ]
    assert sum(job.kind == "references" for job in found) == 3
