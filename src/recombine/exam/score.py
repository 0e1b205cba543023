"""Scores predictions that any program made for a file of episodes, and the references on the same episodes."""

from pathlib import Path

import numpy as np
from jaxtyping import Float
from msgspec import structs

from recombine.errors import InputError
from recombine.exam.array_archive import read_arrays
from recombine.exam.episode_file import Drawn, EpisodeFile, Identity
from recombine.measure.novel import score_novel
from recombine.measure.r2 import score, score_by_mask
from recombine.measure.reference.baselines import make_references, predict_reference
from recombine.record.codec import Record
from recombine.record.novel import NovelScores
from recombine.record.score import SplitScore
from recombine.support.split import TEACHER_SPLITS, Split


class PredictionScores(Record, frozen=True):
    """The scores on each split of the file, and on the novel part if the file has it."""

    splits: dict[str, SplitScore]
    novel: NovelScores | None = None


class ExamScores(Record, frozen=True, kw_only=True):
    """The result of `recombine score`."""

    digest: str
    about: Identity
    scores: PredictionScores
    references: dict[str, PredictionScores]


def read_predictions(path: Path, file: EpisodeFile) -> Float[np.ndarray, "E *out"]:
    """One finite label for each episode: a number, or o numbers with several outputs.

    `digest` must be that of the episodes which were predicted.
    """
    arrays = read_arrays("predictions", path)
    for name in ("prediction", "digest"):
        if name not in arrays:
            what = f"has no array {name}; it needs prediction, and digest as in the file of episodes"
            raise InputError("predictions", str(path), what)
    digest = str(arrays["digest"])
    if digest != file.digest:
        what = f"are for other episodes: their digest is {digest[:12]}…, that of the episodes is {file.digest[:12]}…"
        raise InputError("predictions", str(path), what)
    found = arrays["prediction"]
    expected = (sum(len(part.episodes.query_y) for part in file.drawn.values()), *file.task.label_shape)
    if found.dtype.kind not in "fiu":
        raise InputError("predictions", str(path), f"prediction has type {found.dtype}; it must be real numbers")
    if found.shape != expected:
        each = f"{file.task.output_dim} numbers" if file.task.label_shape else "one number"
        what = f"prediction has shape {found.shape}; {each} per episode has shape {expected}"
        raise InputError("predictions", str(path), what)
    bad = np.flatnonzero(~np.isfinite(found).reshape(len(found), -1).all(axis=1))
    if bad.size:
        what = f"{bad.size} of {len(found)} predictions are not finite, the first at episode {bad[0]}"
        raise InputError("predictions", str(path), what)
    return found.astype(np.float64)


def score_file(prediction: Float[np.ndarray, "E *out"], file: EpisodeFile, with_references: bool = True) -> ExamScores:
    """Score one prediction for each episode of the file."""
    counts = [len(part.episodes.query_y) for part in file.drawn.values()]
    pieces = np.split(prediction, np.cumsum(counts)[:-1])
    scores = _score_parts(file, dict(zip(file.drawn, pieces, strict=True)))
    references = score_references(file) if with_references else {}
    return ExamScores(digest=file.digest, about=file.identity, scores=scores, references=references)


def score_references(file: EpisodeFile) -> dict[str, PredictionScores]:
    """The scores of every reference on the episodes of the file."""
    return {
        name: _score_parts(
            file,
            {
                split: predict_reference(reference, part.teacher, part.episodes, _labelled_like(split))
                for split, part in file.drawn.items()
            },
        )
        for name, reference in make_references(
            file.identity.seed, file.teacher, file.task.support, file.task.episode_length
        ).items()
    }


def _labelled_like(split: str) -> Split:
    """The split with the same kind of teacher: the novel part is made of held-out tasks."""
    return "ood" if split == "novel" else split  # pyright: ignore[reportReturnType]


def _score_parts(file: EpisodeFile, predictions: dict[str, np.ndarray]) -> PredictionScores:
    splits, novel = {}, None
    for split, prediction in predictions.items():
        part = file.drawn[split]
        if part.novel is not None:
            both = (score_novel(prediction, part.novel, span) for span in (part.novel.span, part.novel.finer))
            novel = NovelScores(*both)
        else:
            splits[split] = _score_split(prediction, part, split, file)
    return PredictionScores(splits, novel)


def _score_split(prediction: np.ndarray, part: Drawn, split: str, file: EpisodeFile) -> SplitScore:
    masks = None
    if split in ("train", *TEACHER_SPLITS):
        masks = score_by_mask(prediction, part.episodes, file.task.support.masks_of(split))
    return SplitScore(**structs.asdict(score(prediction, part.episodes)), masks=masks)
