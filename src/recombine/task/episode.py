"""Episodes: one task shown in context, as N − 1 labelled pairs and a query.

Paper: Section 2, "In-context learning"; Appendix C.1 (app:task_generation).
"""

from math import sqrt

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from recombine.task.latent import sample_latent
from recombine.task.names import Control
from recombine.task.teacher import Teacher, init_teacher


class Episode(eqx.Module):
    """One task in context. A batch of episodes has a leading axis on every field."""

    context_x: Float[Array, "*batch context d"]
    context_y: Float[Array, "*batch context"]
    query_x: Float[Array, "*batch d"]
    query_y: Float[Array, "*batch"]
    latent: Float[Array, "*batch M"]
    mask_index: Int[Array, "*batch"]


def sample_input(key: Key[Array, ""], shape: tuple[int, ...]) -> Float[Array, "..."]:
    """x ~ U(−√3, √3): mean 0 and standard deviation 1 in every entry."""
    return jax.random.uniform(key, shape, jnp.float32, minval=-sqrt(3), maxval=sqrt(3))


def sample_episode(key: Key[Array, ""], teacher: Teacher, masks: Float[Array, "S M"], length: int) -> Episode:
    """A mask uniformly from the masks, a latent from the mask, `length` inputs, and their labels."""
    mask_key, latent_key, input_key = jax.random.split(key, 3)
    mask_index = jax.random.randint(mask_key, (), 0, len(masks), jnp.int32)
    z = sample_latent(latent_key, masks[mask_index])
    x = sample_input(input_key, (length, teacher.theta.shape[-1]))
    y = teacher.label(z, x)
    return Episode(x[:-1], y[:-1], x[-1], y[-1], z, mask_index)


def sample_episodes(
    key: Key[Array, ""],
    teacher: Teacher,
    masks: Float[Array, "S M"],
    length: int,
    num_episodes: int,
    first: int | Int[Array, ""] = 0,
) -> Episode:
    """The episodes `first`, `first` + 1, …. Episode i depends on the key and on i alone, however a batch is cut."""
    return jax.vmap(lambda key: sample_episode(key, teacher, masks, length))(episode_keys(key, num_episodes, first))


def sample_control_episodes(
    key: Key[Array, ""],
    teacher: Teacher,
    masks: Float[Array, "S M"],
    length: int,
    num_episodes: int,
    control: Control = "teacher",
) -> tuple[Teacher, Episode]:
    """A batch of unstructured tasks: each by a teacher of its own, which is returned too (leading axis on θ and a).

    Paper: Appendix C.2, "Random unstructured control" (app:random-control-task).
    """
    num_modules, hidden_dim, input_dim = teacher.theta.shape

    def sample(key: Key[Array, ""]) -> tuple[Teacher, Episode]:
        teacher_key, episode_key = jax.random.split(key)
        fresh = init_teacher(teacher_key, num_modules, input_dim, hidden_dim)
        if control == "modules":
            fresh = Teacher(fresh.theta, teacher.a)
        return fresh, sample_episode(episode_key, fresh, masks, length)

    return jax.vmap(sample)(episode_keys(key, num_episodes))


def episode_keys(key: Key[Array, ""], num_episodes: int, first: int | Int[Array, ""] = 0) -> Key[Array, "E"]:
    numbers = jnp.arange(num_episodes, dtype=jnp.uint32) + jnp.asarray(first, jnp.uint32)
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, numbers)
