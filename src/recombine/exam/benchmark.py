"""recombine-v1, the frozen benchmark: its tasks, supports, seeds, sizes, steps, and the digests of its episodes.

Nothing here may change: a result of today must compare with one of next year. A change makes another benchmark.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from msgspec import structs

from recombine import __version__
from recombine.config.schema import Config
from recombine.config.task import TaskConfig
from recombine.config.toml import Tables, override
from recombine.errors import InputError
from recombine.exam.array_archive import Arrays, read_arrays
from recombine.exam.episode_file import EpisodeFile, draw, identify
from recombine.exam.score import score_file
from recombine.record.codec import BadRecord, Record, decode, encode
from recombine.task.teacher import task_teacher

NAME = "recombine-v1"
Size = Literal["smoke", "quick", "full"]

TASKS: Mapping[str, Tables] = {
    "paper": {},
    "even": {"activation": "even"},  # no linear shortcut: composing modules is most of a held-out task
    "noisy": {"label_noise": 0.1},  # on the labels of the context
}
MAIN = "connected+"
EPISODES = {"smoke": 32, "quick": 1_000, "full": 1_000}  # of each split, for the scores
TOLERANCE = 1e-4  # of R², between machines


class Setting(NamedTuple):
    """One task on one support with one seed: one run."""

    task: str
    support: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.task}-{self.support}-seed{self.seed}"


def settings(size: Size) -> list[Setting]:
    """The runs, the first seed first. `quick` is the first seed on the main support, and so a part of `full`."""
    if size != "full":
        return [Setting(task, MAIN, 0) for task in TASKS]
    supports = [*((task, MAIN) for task in TASKS), ("paper", "connected"), ("paper", "disconnected")]
    return [Setting(*one, seed) for seed in (0, 1, 2) for one in supports]


SIZES: Tables = {
    "task": {"input_dim": 8, "hidden_dim": 8, "episode_length": 16},
    "optimizer": {"num_steps": 10_000, "batch_size": 128},
    "measure": {"episodes": 1_600, "snapshots": 10},
}
SMOKE: Tables = {
    "task": {"input_dim": 4, "hidden_dim": 4, "episode_length": 8},
    "optimizer": {"num_steps": 20, "batch_size": 16},
    "measure": {"episodes": 32, "snapshots": 1},
}


def setting_config(config: Config, setting: Setting, size: Size) -> Config:
    """The configuration of a run: the model and the optimiser are the user's, everything else is the benchmark's."""
    config = override(config, SMOKE if size == "smoke" else SIZES)
    task = {"support": setting.support, **TASKS[setting.task]}
    return override(config, {"task": task, "seed": setting.seed})


class Frozen(NamedTuple):
    """What identifies the episodes of a run on every machine."""

    digest: str
    """SHA-256 of the task, its sizes, and the mask of every episode: whole numbers. The number of episodes of the novel
    part follows from a numerical rank, which another processor might find to be one more or less."""
    labels: float
    """The root mean square of the query labels. Its last digits depend on the processor."""


FROZEN: Mapping[str, Frozen] = {
    "smoke-paper-connected+-seed0": Frozen("85bceaa82a9bf2ac", 0.559984),
    "smoke-even-connected+-seed0": Frozen("bd55b5032735fe52", 0.654941),
    "smoke-noisy-connected+-seed0": Frozen("38c8b1b63723f52a", 0.559984),
    "paper-connected+-seed0": Frozen("b1e86c1ad240c561", 0.361576),
    "even-connected+-seed0": Frozen("af4729524365c78e", 0.387375),
    "noisy-connected+-seed0": Frozen("3bae50c472cd122a", 0.361576),
    "paper-connected-seed0": Frozen("3e8dbe998874b582", 0.372914),
    "paper-disconnected-seed0": Frozen("f880144af75ad891", 0.37814),
    "paper-connected+-seed1": Frozen("454709126f42d6a4", 0.414033),
    "even-connected+-seed1": Frozen("eca494188c426d3f", 0.593999),
    "noisy-connected+-seed1": Frozen("6480bd05ccbcdede", 0.414033),
    "paper-connected-seed1": Frozen("ff508bb5a87262c5", 0.378792),
    "paper-disconnected-seed1": Frozen("78fe93dba81ee71e", 0.384358),
    "paper-connected+-seed2": Frozen("17f4a5d9196f136a", 0.382999),
    "even-connected+-seed2": Frozen("12326482ec7b6ad8", 0.579393),
    "noisy-connected+-seed2": Frozen("5c117e688bc0905f", 0.382999),
    "paper-connected-seed2": Frozen("c90f2e514d325032", 0.37968),
    "paper-disconnected-seed2": Frozen("055edc6965ead3c0", 0.392248),
}


def episodes_of(setting: Setting, size: Size) -> EpisodeFile:
    """The episodes of a run, drawn again, and compared with the frozen ones."""
    task = setting_config(Config(), setting, size).task
    file = _draw(task, setting.seed, EPISODES[size])
    found, expected = fingerprint(file), FROZEN[_key(setting, size)]
    if found.digest != expected.digest or not np.isclose(found.labels, expected.labels, rtol=1e-3):
        raise ArithmeticError(
            f"{setting.name}: this version draws other episodes than {NAME} has; install Recombine as it was released"
        )
    return file


def fingerprint(file: EpisodeFile) -> Frozen:
    task, identity = file.task, file.identity
    sizes = [task.input_dim, task.hidden_dim, task.episode_length, identity.seed, identity.episodes]
    about = json.dumps([sizes, task.variation, task.support.masks, task.support.held_out], sort_keys=True)
    masks = [np.asarray(part.episodes.mask_index, "<i4").tobytes() for part in file.drawn.values()]
    labels = np.concatenate([np.asarray(part.episodes.query_y, np.float64) for part in file.drawn.values()])
    digest = hashlib.sha256(about.encode() + b"".join(masks)).hexdigest()[:16]
    return Frozen(digest, float(f"{np.sqrt(np.mean(labels**2)):.6g}"))


def _draw(task: TaskConfig, seed: int, episodes: int) -> EpisodeFile:
    identity, teacher = identify(task, "all", episodes, seed), task_teacher(task, seed)
    return EpisodeFile(identity, "", task, teacher, draw(identity, task, teacher))


def _key(setting: Setting, size: Size) -> str:
    return f"smoke-{setting.name}" if size == "smoke" else setting.name


class RunResult(Record, frozen=True, kw_only=True):
    """One run of a result. The scores are those of the predictions in the same file."""

    task: str
    support: str
    seed: int
    episodes: str
    """The digest of its episodes."""
    r2: dict[str, float]
    """By split; `novel` is that of the novel part."""
    core_hours: float

    @property
    def setting(self) -> Setting:
        return Setting(self.task, self.support, self.seed)


class Result(Record, frozen=True, kw_only=True):
    """The content of a result file, besides the predictions: its array `about` has this as JSON."""

    benchmark: str = NAME
    version: str = __version__
    size: Size
    model: str
    """The label."""
    config: Tables
    """The model and the optimiser."""
    parameters: int
    machine: str
    runs: tuple[RunResult, ...]

    @property
    def core_hours(self) -> float:
        return sum(run.core_hours for run in self.runs)

    def values(self, task: str, support: str = MAIN, split: str = "ood") -> list[float]:
        """The R² of every seed."""
        found = [run for run in self.runs if (run.task, run.support) == (task, support)]
        return [run.r2[split] for run in sorted(found, key=lambda run: run.seed)]

    def score(self) -> list[float]:
        """The score of every seed, by which results are ranked: the mean R² on the novel part over the tasks.

        R² of the whole held-out task would rank a model well that only blends trained tasks.
        """
        by_task = (self.values(task, split="novel") for task in TASKS)
        return [fmean(values) for values in zip(*by_task, strict=True)]


def rounded(prediction: Float[np.ndarray, "E"]) -> np.ndarray:
    """Predictions as a result stores them: half precision, which changes R² by 1e-6, unless they are too large."""
    with np.errstate(over="ignore"):
        half = prediction.astype(np.float16)
    return half if np.isfinite(half).all() else prediction.astype(np.float32)


def score_run(prediction: np.ndarray, file: EpisodeFile) -> dict[str, float]:
    """The scores of stored predictions."""
    found = score_file(prediction.astype(np.float64), file, with_references=False).scores
    novel = {} if found.novel is None else {"novel": found.novel.ood.r2}
    return {split: one.r2 for split, one in found.splits.items()} | novel


def result_arrays(result: Result, predictions: Mapping[str, np.ndarray]) -> Arrays:
    return {"about": np.asarray(encode(result)), **predictions}


def read_result(path: Path) -> tuple[Result, Arrays]:
    """A result file and its predictions. Refuses what is no complete result of this benchmark."""
    arrays = read_arrays("result", path)
    if "about" not in arrays:
        raise InputError("result", str(path), "has no array about; `recombine benchmark` writes such a file")
    try:
        result = decode(str(arrays.pop("about")), Result)
    except BadRecord as error:
        raise InputError("result", str(path), f"its array about cannot be read ({error})") from error
    if result.benchmark != NAME:
        raise InputError("result", str(path), f"is of {result.benchmark!r}; this version has {NAME}")
    expected, found = settings(result.size), [run.setting for run in result.runs]
    if sorted(found) != sorted(expected):
        raise InputError("result", str(path), f"has not the {len(expected)} runs of the size {result.size}")
    if missing := sorted({one.name for one in expected} ^ set(arrays)):
        raise InputError("result", str(path), f"{missing[0]}: the predictions do not belong to the runs")
    return result, arrays


def verify_result(path: Path) -> Result:
    """Draw the episodes again, score the predictions, and compare. Returns the result with the scores of now."""
    result, predictions = read_result(path)
    runs: list[RunResult] = []
    for run in result.runs:
        name, file = run.setting.name, episodes_of(run.setting, result.size)
        if run.episodes != FROZEN[_key(run.setting, result.size)].digest:
            raise InputError("result", str(path), f"{name}: the predictions are for other episodes ({run.episodes})")
        prediction = predictions[name]
        count = sum(len(part.episodes.query_y) for part in file.drawn.values())
        if prediction.shape != (count,) or prediction.dtype.kind != "f":
            what = f"{prediction.dtype}{list(prediction.shape)}"
            raise InputError("result", str(path), f"{name}: the predictions are {what}; they must be {count} numbers")
        if not np.isfinite(prediction).all():
            raise InputError("result", str(path), f"{name}: some predictions are not finite")
        measured = score_run(prediction, file)
        for split, r2 in measured.items():
            claimed = run.r2.get(split)
            if claimed is None or abs(claimed - r2) > TOLERANCE * max(1.0, abs(1 - r2)):
                what = f"{name}: it says that R² of {split} is {claimed}; its predictions have {r2:.6f}"
                raise InputError("result", str(path), what)
        runs.append(structs.replace(run, r2=measured))
    return structs.replace(result, runs=tuple(runs))
