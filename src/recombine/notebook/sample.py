"""`rc.sample`: episodes of any split."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import jax
import numpy as np

from recombine.checks import LARGEST_COUNT, check_choice, check_size
from recombine.config.schema import Config
from recombine.html_table import html_table
from recombine.notebook.configure import configure
from recombine.notebook.load import Run
from recombine.run.machine import prepare
from recombine.support.masks import format_mask
from recombine.support.split import Split
from recombine.task.episode import Episode
from recombine.task.sample import sample_split
from recombine.task.teacher import Teacher, config_teacher

if TYPE_CHECKING:
    from collections.abc import Sequence

SHOWN = 5


@dataclass(frozen=True)
class Episodes:
    """Episodes of one split, and the teacher that labels them (for the controls, one per episode)."""

    config: Config
    split: Split
    teacher: Teacher
    batch: Episode
    """The arrays, with a leading axis: context_x, context_y, query_x, query_y, latent, mask_index."""

    def __len__(self) -> int:
        return len(self.batch.query_y)

    @property
    def context_x(self) -> jax.Array:
        return self.batch.context_x

    @property
    def context_y(self) -> jax.Array:
        return self.batch.context_y

    @property
    def query_x(self) -> jax.Array:
        return self.batch.query_x

    @property
    def query_y(self) -> jax.Array:
        return self.batch.query_y

    @property
    def latent(self) -> jax.Array:
        """The teacher's latent of each episode, M numbers."""
        return self.batch.latent

    @property
    def masks(self) -> "Sequence[str]":
        """The mask of each episode, such as '110000'."""
        masks = [format_mask(mask) for mask in self.config.task.support.masks_of(self.split)]
        return [masks[i] for i in np.asarray(self.batch.mask_index)]

    def __repr__(self) -> str:
        shape = f"N = {self.context_y.shape[1] + 1}, d = {self.query_x.shape[-1]}"
        shape += f", o = {self.config.task.output_dim}" if self.config.task.label_shape else ""
        return f"Episodes({len(self)} of {self.split} on {self.config.task.support.name}, {shape})"

    def _repr_html_(self) -> str:
        latents, labels = np.asarray(self.latent[:SHOWN]), np.asarray(self.query_y[:SHOWN])
        rows = [
            (i, mask, " ".join(f"{z:.2f}" for z in latent), " ".join(f"{y:.3f}" for y in np.ravel(label)))
            for i, (mask, latent, label) in enumerate(zip(self.masks[:SHOWN], latents, labels, strict=True))
        ]
        return html_table(repr(self), ("episode", "mask", "latent", "query y"), rows)


def sample(of: "Run | Config | None" = None, split: Split = "ood", episodes: int = 200) -> Episodes:
    """Episodes of a run's tasks, or of a configuration's (`rc.configure`). Episode i is the same in every call.

    They begin with the episodes that the run is measured on. One program serves any number of them.
    """
    prepare()
    check_choice("split", split, *get_args(Split))
    check_size("episodes", episodes, most=LARGEST_COUNT)
    config = of.config if isinstance(of, Run) else of or configure()
    task, teacher = config.task, config_teacher(config)
    teacher, batch = sample_split(
        config.seed, split, teacher, task.support, task.episode_length, episodes, in_pieces=True
    )
    return Episodes(config, split, teacher, batch)
