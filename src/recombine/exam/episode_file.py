"""Files of episodes, for use without Recombine: plain arrays, and all that identifies them.

The same identity draws the same episodes again. So a score needs nothing from the file but its identity, and a file
whose labels were changed is refused.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from msgspec import structs

from recombine import __version__
from recombine.checks import MOST_NUMBERS, check_choice, check_seed, check_size
from recombine.config.schema import Config
from recombine.config.task import HYPERNETWORK, TaskConfig
from recombine.config.toml import Tables, config_tables, stored_config
from recombine.errors import InputError
from recombine.exam.array_archive import Arrays, read_arrays
from recombine.measure.novel import LEAST_QUERIES, NUM_CONTEXTS, NovelTasks, novel_tasks
from recombine.record.codec import BadRecord, Record, decode, encode
from recombine.support.masks import Mask
from recombine.support.split import CONTROL_SPLITS, SAMPLED, FilePart, Sampled
from recombine.task.custom_task import READOUT, keeps_readout
from recombine.task.episode import Episode
from recombine.task.evaluation import task_splits
from recombine.task.sample import sample_split
from recombine.task.teacher import Teacher, named_leaves, task_teacher

FORMAT = 1
MODEL_INPUT = ("context_x", "context_y", "query_x")
RELATIVE, ABSOLUTE = 1e-3, 1e-4  # of the difference between the labels that two machines compute


class Identity(Record, frozen=True, kw_only=True):
    """What a file's episodes are drawn from: its array `about` has this as JSON."""

    format: int = FORMAT
    version: str = __version__
    """The version of Recombine that wrote the file."""
    split: Sampled
    episodes: int
    """The number of episodes of each split. The novel part has its own number of contexts and queries."""
    seed: int
    task: Tables
    """The support and the sizes, as in the configuration of a run."""
    directions: tuple[int, int] | None = None
    """The number of directions of the span of the trained tasks, and of the finer span, as the program that wrote the
    file found them. On another processor the last digits differ, so it might find other numbers."""


class Drawn(NamedTuple):
    """A split's episodes, and the teacher that labels them (for the controls, one per episode)."""

    teacher: Teacher
    episodes: Episode
    novel: NovelTasks | None = None


class EpisodeFile(NamedTuple):
    """A file of episodes that was read, checked, and drawn again."""

    identity: Identity
    digest: str
    task: TaskConfig
    teacher: Teacher
    drawn: dict[str, Drawn]
    """By split, in the order of the file."""


def identify(task: TaskConfig, split: Sampled, num_episodes: int, seed: int) -> Identity:
    return Identity(split=split, episodes=num_episodes, seed=seed, task=config_tables(Config(task=task))["task"])


def sample_file(identity: Identity) -> Arrays:
    """The arrays that `recombine task sample` writes.

    mask_index points into masks (S, M). For the novel part, the episodes of one context follow each other. In the file
    of a single control split, θ and a have a leading axis; in a file of all splits, they are the teacher's own.
    """
    task = identified_task(identity)
    check_volume(task, identity)
    teacher = task_teacher(task, identity.seed)
    drawn = draw(identity, task, teacher)
    if identity.split == "all":
        masks = (*task.support.masks, *task.support.held_out)
        offset = {"ood": len(task.support.masks), "novel": len(task.support.masks)}
    else:
        masks, teacher, offset = _masks_of(task, identity.split), drawn[identity.split].teacher, {}
    if (novel := drawn["novel"].novel if "novel" in drawn else None) is not None:
        identity = structs.replace(identity, directions=novel.directions)
    parts = {split: _numpy(part.episodes) for split, part in drawn.items()}
    index = [part["mask_index"] + offset.get(split, 0) for split, part in parts.items()]
    joined = {name: np.concatenate([part[name] for part in parts.values()]) for name in Episode.__dataclass_fields__}
    arrays = {
        "about": np.asarray(encode(identity)),
        "split": np.concatenate([np.full(len(part["query_y"]), split) for split, part in parts.items()]),
        "masks": np.asarray(masks, np.int32),
        **{name if task.kind == HYPERNETWORK else f"teacher.{name}": leaf for name, leaf in named_leaves(teacher)},
        **joined,
        "mask_index": np.concatenate(index),
    }
    if not (np.isfinite(arrays["context_y"]).all() and np.isfinite(arrays["query_y"]).all()):
        raise ArithmeticError("a label is not finite: the teacher's W(z) vanished; another seed draws another teacher")
    return arrays | {"digest": np.asarray(digest_of(arrays))}


def draw(identity: Identity, task: TaskConfig, teacher: Teacher) -> dict[str, Drawn]:
    """The episodes of every split in the file."""
    found = {}
    for split in _splits(task, identity.split):
        if split == "novel":
            config = Config(task=task, seed=identity.seed)
            novel = novel_tasks(config, teacher, directions=identity.directions)
            found[split] = Drawn(teacher, novel.episodes, novel)
        else:
            arguments = (teacher, task.support, task.episode_length, identity.episodes)
            found[split] = Drawn(*sample_split(identity.seed, split, *arguments))
    return found


def read_episode_file(path: Path) -> EpisodeFile:
    """A file of episodes. Refuses a file that is damaged, or whose episodes are not those of its identity."""
    arrays = read_arrays("episodes", path)
    for name in ("about", "digest", *MODEL_INPUT, "query_y"):
        if name not in arrays:
            raise InputError("episodes", str(path), f"has no array {name}; `recombine task sample` writes such a file")
    digest = str(arrays.pop("digest"))
    if digest != digest_of(arrays):
        raise InputError("episodes", str(path), "the arrays do not match the file's digest: it was edited or damaged")
    try:
        identity = decode(str(arrays["about"]), Identity)
    except BadRecord as error:
        raise InputError("episodes", str(path), f"its array about cannot be read ({error})") from error
    if identity.format != FORMAT:
        raise InputError("episodes", str(path), f"has format {identity.format}; this version reads {FORMAT}")
    task = identified_task(identity)
    check_volume(task, identity)
    teacher = task_teacher(task, identity.seed)
    drawn = draw(identity, task, teacher)
    again = [_numpy(part.episodes) for part in drawn.values()]
    for name in (*MODEL_INPUT, "query_y"):
        expected = np.concatenate([part[name] for part in again])
        found = arrays[name]
        if found.shape != expected.shape or not np.allclose(found, expected, RELATIVE, ABSOLUTE):
            made = f"(it was written by version {identity.version}, this is {__version__})"
            raise InputError("episodes", str(path), f"its {name} differs from what its seed and task give {made}")
    return EpisodeFile(identity, digest, task, teacher, drawn)


def digest_of(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of the arrays: names, types, shapes and content."""
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def identified_task(identity: Identity) -> TaskConfig:
    """The task of an identity, checked: a file may have been written by anything."""
    check_choice("split", identity.split, *SAMPLED)
    check_size("episodes", identity.episodes, most=MOST_NUMBERS)
    check_seed("seed", identity.seed)
    task = stored_config({"task": identity.task}).task
    _splits(task, identity.split)
    return task


def check_volume(task: TaskConfig, identity: Identity) -> None:
    """Refuse a file larger than a gigabyte before anything is drawn."""
    numbers = 0
    for split in _splits(task, identity.split):
        count = NUM_CONTEXTS * LEAST_QUERIES if split == "novel" else identity.episodes
        teachers = count if split in CONTROL_SPLITS else 1
        numbers += count * task.episode_length * max(task.input_dim, task.hidden_dim, task.output_dim)
        numbers += teachers * task.num_modules * task.hidden_dim * max(task.input_dim, task.output_dim)
    if numbers > MOST_NUMBERS:
        wanted = f"{numbers:,} numbers at these sizes; at most {MOST_NUMBERS:,} in one file"
        raise InputError("episodes", identity.episodes, wanted)


def _splits(task: TaskConfig, split: Sampled) -> list[FilePart]:
    """The splits that a file has. Refuses held-out masks where there are none."""
    if split == "all":
        return [*task_splits(task), *(["novel"] if task.support.held_out else [])]
    _masks_of(task, split)
    if split == "control_modules" and not keeps_readout(task):
        raise InputError("split", split, f"{task.kind} has no method {READOUT}, so its readout cannot be kept")
    return [split]


def _masks_of(task: TaskConfig, split: Sampled) -> tuple[Mask, ...]:
    return task.support.masks_of("ood" if split in ("ood", "novel") else "in_dist")


def _numpy(module: object) -> Arrays:
    return {name: np.asarray(value) for name, value in vars(module).items() if isinstance(value, jax.Array)}
