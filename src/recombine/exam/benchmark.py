"""recombine-v1, the frozen benchmark: its tasks, supports, seeds, sizes, steps, and the digests of its episodes.

Nothing here may change, so that results stay comparable over the years. A change makes another benchmark.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
from msgspec import structs

from recombine.config.schema import Config
from recombine.config.task import TaskConfig
from recombine.config.toml import Tables, override
from recombine.errors import InputError
from recombine.exam.episode_file import EpisodeFile, draw, identify
from recombine.measure.novel import novel_part
from recombine.task.sample import sample_split
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
TRAINED = 128  # episodes of the first training batch


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
    """What identifies the episodes of a run on every machine: all that a model sees and is scored on."""

    digest: str
    """SHA-256 of the whole numbers: the task, its sizes, and the mask of every episode."""
    directions: tuple[int, int]
    """The number of directions of the span of the trained tasks, and of the finer span. They are given, because another
    processor might find one direction more or less, and with it another number of episodes."""
    sums: tuple[float, ...]
    """Weighted sums of `FLOATS` in all episodes, the first training batch included, and of the novel parts of the
    labels. The weight of a number depends on its place. The last digits of a sum depend on the processor."""


FLOATS = ("context_x", "context_y", "query_x", "query_y", "latent")
NOISE, DIGITS = 0.01, 3  # of a sum, between machines; other episodes change it by 1 to 1,000

FROZEN: Mapping[str, Frozen] = {
    "smoke-paper-connected+-seed0": Frozen(
        "d930964cacdfd17e", (13, 18), (-188.917, -142.303, 95.492, -26.573, 84.266, -1.16, -0.991)
    ),
    "smoke-even-connected+-seed0": Frozen(
        "26e2024576f5c5af", (14, 21), (-52.753, 81.337, 84.524, 44.002, 74.196, 3.687, 0.617)
    ),
    "smoke-noisy-connected+-seed0": Frozen(
        "3c54ac36bf53720c", (13, 18), (-188.917, -137.211, 95.492, -26.573, 84.266, -1.16, -0.991)
    ),
    "paper-connected+-seed0": Frozen(
        "b00ef794708148e1", (15, 20), (-1824.651, -24.689, -165.353, -12.713, 15.168, -0.357, -1.894)
    ),
    "even-connected+-seed0": Frozen(
        "df8974d33994384b", (17, 25), (-1054.673, 4.433, -51.808, 37.106, -1.569, 10.91, 2.384)
    ),
    "noisy-connected+-seed0": Frozen(
        "6c9bc056ec2009d8", (15, 20), (-1824.651, -34.152, -165.353, -12.713, 15.168, -0.357, -1.894)
    ),
    "paper-connected-seed0": Frozen(
        "e3eef7ef6698d77a", (10, 12), (1420.75, 131.414, -104.474, 37.275, -10.323, -11.746, -11.839)
    ),
    "paper-disconnected-seed0": Frozen(
        "db0307a52aa2a0eb", (10, 12), (1420.75, 99.894, -104.474, 20.284, -60.815, 2.777, 6.171)
    ),
    "paper-connected+-seed1": Frozen(
        "e26d819f97ebc75e", (16, 20), (758.856, -124.778, -395.22, -32.179, 32.788, -3.514, -2.428)
    ),
    "even-connected+-seed1": Frozen(
        "a6a5352dbfbd47cb", (17, 23), (-16.864, 244.994, -403.107, -19.305, -47.145, -4.531, 1.852)
    ),
    "noisy-connected+-seed1": Frozen(
        "ac1452f7cf57759d", (16, 20), (758.856, -121.276, -395.22, -32.179, 32.788, -3.514, -2.428)
    ),
    "paper-connected-seed1": Frozen(
        "dd57475ae4eeda6a", (10, 12), (-86.525, -94.255, -381.35, -12.435, -84.683, 0.363, 1.615)
    ),
    "paper-disconnected-seed1": Frozen(
        "9ea8a5054ff5624e", (9, 11), (-86.525, -88.736, -381.35, 9.316, -29.646, 17.991, 13.54)
    ),
    "paper-connected+-seed2": Frozen(
        "0050cd42f1d63863", (15, 19), (-858.094, -50.815, 686.732, -38.516, 70.134, -1.963, -0.091)
    ),
    "even-connected+-seed2": Frozen(
        "2fbe7fb6eb9d8575", (16, 23), (-356.918, -278.93, 773.738, -39.134, 24.933, -4.203, -3.462)
    ),
    "noisy-connected+-seed2": Frozen(
        "cb9debe216b85694", (15, 19), (-858.094, -120.701, 686.732, -38.516, 70.134, -1.963, -0.091)
    ),
    "paper-connected-seed2": Frozen(
        "503086bb8b4fee53", (9, 11), (-858.094, -84.634, 686.732, -41.826, -1.375, 2.847, 3.946)
    ),
    "paper-disconnected-seed2": Frozen(
        "d5d63c7f3a7bb4e9", (10, 12), (-858.094, -67.145, 686.732, -58.919, -36.695, 2.031, 1.015)
    ),
}


def frozen(setting: Setting, size: Size) -> Frozen:
    return FROZEN[f"smoke-{setting.name}" if size == "smoke" else setting.name]


def episodes_of(setting: Setting, size: Size) -> EpisodeFile:
    """The episodes of a run, drawn again, and compared with the frozen ones."""
    expected, task = frozen(setting, size), setting_config(Config(), setting, size).task
    try:
        file = draw_file(task, setting.seed, EPISODES[size], expected.directions)
    except InputError as error:
        raise OtherEpisodes(setting.name) from error
    check_frozen(setting.name, file, expected)
    return file


class OtherEpisodes(ArithmeticError):
    """This version or this machine draws other episodes than those of the benchmark."""

    def __init__(self, name: str):
        super().__init__(f"{name}: other episodes than {NAME} has are drawn here; install Recombine as it was released")


def check_frozen(name: str, file: EpisodeFile, expected: Frozen) -> None:
    """Refuse episodes that are not the frozen ones."""
    found = fingerprint(file)
    if found[:2] != expected[:2] or not np.allclose(found.sums, expected.sums, rtol=0, atol=NOISE):
        raise OtherEpisodes(name)


def draw_file(task: TaskConfig, seed: int, episodes: int, directions: tuple[int, int] | None = None) -> EpisodeFile:
    identity = structs.replace(identify(task, "all", episodes, seed), directions=directions)
    teacher = task_teacher(task, seed)
    return EpisodeFile(identity, "", task, teacher, draw(identity, task, teacher))


def fingerprint(file: EpisodeFile) -> Frozen:
    task, identity, novel = file.task, file.identity, file.drawn["novel"].novel
    assert novel is not None
    sizes = [task.input_dim, task.hidden_dim, task.episode_length, identity.seed, identity.episodes]
    about = json.dumps([sizes, task.variation, task.support.masks, task.support.held_out], sort_keys=True)
    _, batch = sample_split(identity.seed, "train", file.teacher, task.support, task.episode_length, TRAINED)
    parts = [batch, *(part.episodes for part in file.drawn.values())]
    masks = [np.asarray(part.mask_index, "<i4").tobytes() for part in parts]
    digest = hashlib.sha256(about.encode() + b"".join(masks)).hexdigest()[:16]
    floats = [np.concatenate([np.ravel(getattr(part, name)) for part in parts]) for name in FLOATS]
    floats += [novel_part(novel, span) for span in (novel.span, novel.finer)]
    return Frozen(digest, novel.directions, tuple(round(_weighted_sum(numbers), DIGITS) for numbers in floats))


def _weighted_sum(numbers: np.ndarray) -> float:
    """Σ w_i v_i with the same pseudo-random weights everywhere, so that no two numbers can change places.

    A weight lies between ½ and 1, or between −1 and −½, so that no number can change unseen.
    """
    numbers = numbers.astype(np.float64).ravel()
    bits = np.frombuffer(hashlib.shake_256(NAME.encode()).digest(4 * len(numbers)), "<i4")
    return float(numbers @ (np.where(bits < 0, -0.5, 0.5) + bits / 2**32))
