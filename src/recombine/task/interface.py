"""The interface of a teacher: it turns a latent and inputs into labels.

The paper's teacher is in `recombine.task.teacher`; a user's own is in `recombine.task.custom_task`.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
from jaxtyping import Array, Bool, Float, Key

from recombine.config.task import InputDistribution


class Teacher(eqx.Module):
    """Everything that the tasks of one seed share. The latent selects a task."""

    label_noise: eqx.AbstractVar[float]
    """The standard deviation of the noise on the labels of a context. The query's label has none."""
    input_distribution: eqx.AbstractVar[InputDistribution]

    @property
    @abstractmethod
    def num_modules(self) -> int: ...

    @property
    @abstractmethod
    def input_dim(self) -> int: ...

    @property
    @abstractmethod
    def hidden_dim(self) -> int: ...

    @property
    @abstractmethod
    def label_shape(self) -> tuple[int, ...]:
        """The shape of one label: () for a number, (o,) for a vector."""

    @abstractmethod
    def label(self, z: Float[Array, "M"], x: Float[Array, "... d"]) -> Float[Array, "..."]:
        """The noiseless labels of inputs under the task of a latent. A vector label is the last axis."""

    @abstractmethod
    def redraw(self, key: Key[Array, ""]) -> "Teacher":
        """A fresh teacher of the same kind and sizes."""

    @abstractmethod
    def with_readout(self, own: "Teacher", keep: bool | Bool[Array, ""]) -> "Teacher":
        """This teacher, with the readout of another if `keep` is true."""

    def task_weights(self, z: Float[Array, "M"]) -> Any:
        """The part of a task that can be computed before its inputs are known. Default: the latent itself."""
        return z

    def network(self, weights: Any, x: Float[Array, "... d"]) -> Float[Array, "..."]:
        """The labels under a task's `task_weights`."""
        return self.label(weights, x)

    def scaled(self, z: Float[Array, "M"]) -> Float[Array, "M"]:
        """The latent in the form that `label_scaled` takes."""
        return z

    def label_scaled(self, v: Float[Array, "M"], x: Float[Array, "... d"]) -> Float[Array, "..."]:
        """The labels for a scaled latent: defined and smooth for all numbers, also far from any task's latent."""
        return self.label(v, x)
