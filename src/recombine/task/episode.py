"""Episodes: one task shown in context, as N − 1 labelled pairs and a query.

Paper: Section 2, "In-context learning"; Appendix C.1 (app:task_generation).
"""

from math import sqrt

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from recombine.config.model import ExtraPair
from recombine.config.task import InputDistribution
from recombine.task.interface import Teacher
from recombine.task.latent import sample_latent


class Episode(eqx.Module):
    """One task in context. A batch of episodes has a leading axis on every field.

    A label is a number; with o > 1 outputs it is a vector, on the last axis of `context_y` and `query_y`.
    """

    context_x: Float[Array, "*batch context d"]
    context_y: Float[Array, "*batch_context_out"]
    query_x: Float[Array, "*batch d"]
    query_y: Float[Array, "*batch_out"]
    latent: Float[Array, "*batch M"]
    mask_index: Int[Array, "*batch"]

    def shown(self, extra: ExtraPair | None = None) -> tuple[Array, Array, Array]:
        """The arrays that a model sees: context_x, context_y and query_x.

        The context may have one more pair. "latent": a pair (z, 0) comes first. "query": the query's own pair
        (x_N, y_N) comes last, with the label that is asked for.
        """
        if extra is None:
            return self.context_x, self.context_y, self.query_x
        pairs = self.query_x.ndim - 1  # the axis of the context, after those of the batch
        if extra == "query":
            x = jnp.concatenate([self.context_x, self.query_x[..., None, :]], axis=-2)
            y = jnp.concatenate([self.context_y, jnp.expand_dims(self.query_y, pairs)], axis=pairs)
            return x, y, self.query_x
        pad = self.query_x.shape[-1] - self.latent.shape[-1]
        z = jnp.concatenate([self.latent, jnp.zeros_like(self.latent, shape=(*self.latent.shape[:-1], pad))], axis=-1)
        x = jnp.concatenate([z[..., None, :].astype(self.context_x.dtype), self.context_x], axis=-2)
        none = jnp.zeros_like(jax.lax.slice_in_dim(self.context_y, 0, 1, axis=pairs))
        y = jnp.concatenate([none, self.context_y], axis=pairs)
        return x, y, self.query_x


def sample_input(
    key: Key[Array, ""], shape: tuple[int, ...], distribution: InputDistribution = "uniform"
) -> Float[Array, "..."]:
    """x ~ U(−√3, √3) in the paper. All distributions have mean 0 and standard deviation 1 in every entry."""
    if distribution == "uniform":
        return jax.random.uniform(key, shape, jnp.float32, minval=-sqrt(3), maxval=sqrt(3))
    x = jax.random.normal(key, shape, jnp.float32)
    if distribution == "normal":
        return x
    return sqrt(shape[-1]) * x / jnp.linalg.norm(x, axis=-1, keepdims=True)  # on the sphere of radius √d


def sample_episode(
    key: Key[Array, ""],
    teacher: Teacher,
    masks: Float[Array, "S M"],
    length: int,
    num_masks: int | Int[Array, ""] | None = None,
) -> Episode:
    """Draw a mask uniformly from the (first `num_masks`) masks, a latent for it, and `length` inputs; label them."""
    mask_key, latent_key, input_key = jax.random.split(key, 3)
    mask_index = jax.random.randint(mask_key, (), 0, len(masks) if num_masks is None else num_masks, jnp.int32)
    z = sample_latent(latent_key, masks[mask_index])
    x = sample_input(input_key, (length, teacher.input_dim), teacher.input_distribution)
    y = teacher.label(z, x)
    return Episode(x[:-1], add_noise(key, teacher, y[:-1]), x[-1], y[-1], z, mask_index)


def add_noise(key: Key[Array, ""], teacher: Teacher, y: Float[Array, "context *out"]) -> Float[Array, "context *out"]:
    """The labels of an episode's context, as they are shown. The noise has its own child of the episode's key."""
    if teacher.label_noise == 0:
        return y
    return y + teacher.label_noise * jax.random.normal(jax.random.fold_in(key, 3), y.shape, y.dtype)


def sample_episodes(
    key: Key[Array, ""],
    teacher: Teacher,
    masks: Float[Array, "S M"],
    length: int,
    num_episodes: int,
    first: int | Int[Array, ""] = 0,
    num_masks: int | Int[Array, ""] | None = None,
) -> Episode:
    """The episodes `first`, `first` + 1, …. Episode i depends only on the key and on i, not on how batches are cut."""
    keys = episode_keys(key, num_episodes, first)
    return jax.vmap(lambda key: sample_episode(key, teacher, masks, length, num_masks))(keys)


def sample_control_episodes(
    key: Key[Array, ""],
    teacher: Teacher,
    masks: Float[Array, "S M"],
    length: int,
    num_episodes: int,
    keep_readout: bool | Bool[Array, ""] = False,
    num_masks: int | Int[Array, ""] | None = None,
    first: int | Int[Array, ""] = 0,
) -> tuple[Teacher, Episode]:
    """A batch of unstructured tasks, each from its own teacher, and those teachers (with a leading axis on θ and a).

    Paper: Appendix C.2, "Random unstructured control" (app:random-control-task).
    """

    def sample(key: Key[Array, ""]) -> tuple[Teacher, Episode]:
        teacher_key, episode_key = jax.random.split(key)
        fresh = teacher.redraw(teacher_key).with_readout(teacher, keep_readout)
        return fresh, sample_episode(episode_key, fresh, masks, length, num_masks)

    return jax.vmap(sample)(episode_keys(key, num_episodes, first))


def episode_keys(key: Key[Array, ""], num_episodes: int, first: int | Int[Array, ""] = 0) -> Key[Array, "E"]:
    numbers = jnp.arange(num_episodes, dtype=jnp.uint32) + jnp.asarray(first, jnp.uint32)
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, numbers)
