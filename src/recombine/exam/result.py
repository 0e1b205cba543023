"""Result files of the benchmark: the predictions of every run, their scores, and how they are verified."""

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

import numpy as np
from jaxtyping import Float
from msgspec import structs

from recombine import __version__
from recombine.config.toml import Tables
from recombine.errors import InputError
from recombine.exam.array_archive import Arrays, read_arrays
from recombine.exam.benchmark import MAIN, NAME, TASKS, Setting, Size, episodes_of, frozen, settings
from recombine.exam.episode_file import EpisodeFile
from recombine.exam.score import score_file
from recombine.record.codec import BadRecord, Record, decode, encode

TOLERANCE = 1e-4  # of R², between machines


class RunResult(Record, frozen=True, kw_only=True):
    """One run of a result. The scores are those of the predictions in the same file."""

    task: str
    support: str
    seed: int
    episodes: str
    """The digest of the run's episodes."""
    r2: dict[str, float]
    """R² by split; `novel` is R² on the novel part."""
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
    """The model's label."""
    config: Tables
    """The configuration of the model and the optimiser."""
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

        By R² on the whole held-out task, a model that only blends trained tasks would rank high.
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
        if run.episodes != frozen(run.setting, result.size).digest:
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
