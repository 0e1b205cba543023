"""Classes as users might write them, as the text of two modules: models with one mistake each, and random ones."""

MODELS = '''
import equinox as eqx
import jax
import jax.numpy as jnp

from recombine.model.bottleneck import Bottleneck
from recombine.model.interface import Output, Trace


def trace_with(name, value):
    """Past the type checks of the tests, which a user does not have."""
    return eqx.tree_at(lambda trace: getattr(trace, name), Trace(), value, is_leaf=lambda leaf: leaf is None)


class Mean(eqx.Module):
    """Predicts a learned multiple of the context's mean."""

    scale: jax.Array

    def __init__(self, config, *, key):
        options = dict(config.model.options)
        self.scale = jnp.full((), options.get("start", 0.5), jnp.float32)

    def __call__(self, context_x, context_y, query_x):
        return Output(self.scale * context_y.mean(), Trace())


class Outputs(eqx.Module):
    """A learned multiple of the context's mean, for each output."""

    scale: jax.Array

    def __init__(self, config, *, key):
        self.scale = jnp.full(config.task.output_dim, 0.5, jnp.float32)

    def __call__(self, context_x, context_y, query_x):
        return Output(self.scale * context_y.mean(axis=0), Trace())


class NoKey(Mean):
    def __init__(self, config):
        pass


class WrongArguments(Mean):
    def __call__(self, episode):
        return Output(jnp.zeros(()), Trace())


class WrongShape(Mean):
    def __call__(self, context_x, context_y, query_x):
        return Output(self.scale * query_x, Trace())


class BareNumber(Mean):
    def __call__(self, context_x, context_y, query_x):
        return self.scale * context_y.mean()


class NoParameters(eqx.Module):
    def __init__(self, config, *, key):
        pass

    def __call__(self, context_x, context_y, query_x):
        return Output(context_y.mean(), Trace())


class Half(Mean):
    def __init__(self, config, *, key):
        self.scale = jnp.ones((), jnp.bfloat16)


class KeepsKey(Mean):
    key: jax.Array

    def __init__(self, config, *, key):
        self.scale, self.key = jnp.ones(()), key


class Looks(Mean):
    """What is decided while it is built must not depend on what is drawn."""

    def __init__(self, config, *, key):
        draw = jax.random.normal(key)
        self.scale = draw if draw > 0 else -draw


class Integer(Mean):
    def __call__(self, context_x, context_y, query_x):
        return Output((self.scale * context_y.mean()).astype(jnp.int32), Trace())


class WrongLatent(Mean):
    def __call__(self, context_x, context_y, query_x):
        return Output(self.scale * context_y.mean(), trace_with('latent', self.scale))


class WrongResidual(Mean):
    def __call__(self, context_x, context_y, query_x):
        return Output(self.scale * context_y.mean(), trace_with('residual', context_x))


class NoTrace(Mean):
    def __call__(self, context_x, context_y, query_x):
        return Output(self.scale * context_y.mean(), None)


class WrongExecute(Mean):
    def __call__(self, context_x, context_y, query_x):
        return Output(self.scale * context_y.mean(), Trace(latent=context_y[:2]))

    def execute(self, z, x):
        return x[:2] * z


class ExecuteTakesOne(WrongExecute):
    def execute(self, z):
        return z


class NoGradient(Mean):
    def __call__(self, context_x, context_y, query_x):
        return Output(jax.lax.stop_gradient(self.scale) * context_y.mean(), Trace())


class NotFinite(Mean):
    def __call__(self, context_x, context_y, query_x):
        return Output(self.scale * jnp.nan, Trace())


class Leaves(Mean):
    def __init__(self, config, *, key):
        raise SystemExit(0)


class Peeks(Mean):
    literal_input = True


class Drops(Mean):
    """Random in training alone."""

    def __call__(self, context_x, context_y, query_x, *, key=None):
        noise = 0.0 if key is None else jax.random.normal(key)
        return Output(self.scale * context_y.mean() + noise, Trace())


class NeedsKey(Mean):
    def __call__(self, context_x, context_y, query_x, *, key):
        return Output(self.scale * context_y.mean(), Trace())


class DropsInItsCall(Bottleneck):
    def __call__(self, context_x, context_y, query_x, *, key=None):
        return super().__call__(context_x, context_y, query_x)


class Plain:
    def __init__(self, config, *, key):
        pass


number = 3
'''


RANDOM = '''
import random
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from my_models import Mean
from recombine.model.interface import Output, Trace


def drawn():
    return np.random.normal(size=()).astype(np.float32)


@jax.jit
def with_a_constant(y):
    return y + drawn()


class DrawsParameters(Mean):
    def __init__(self, config, *, key):
        self.scale = jnp.asarray(drawn())


class SeedsWithTheClock(Mean):
    def __init__(self, config, *, key):
        self.scale = jax.random.normal(jax.random.key(time.time_ns() % 2**31))


class DrawsSetting(Mean):
    shift: float = eqx.field(static=True)

    def __init__(self, config, *, key):
        self.scale, self.shift = jnp.ones(()), random.random()

    def __call__(self, context_x, context_y, query_x):
        return Output(self.scale * context_y.mean() + self.shift, Trace())


class DrawsInCall(Mean):
    def __call__(self, context_x, context_y, query_x):
        return Output(self.scale * context_y.mean() + drawn(), Trace())


class DrawsInItsOwnProgram(Mean):
    def __call__(self, context_x, context_y, query_x):
        return Output(self.scale * with_a_constant(context_y.mean()), Trace())


class DrawsWhileItRuns(Mean):
    def __call__(self, context_x, context_y, query_x):
        noise = jax.pure_callback(drawn, jax.ShapeDtypeStruct((), jnp.float32))
        return Output(self.scale * context_y.mean() + noise, Trace())


class DrawsInTrace(Mean):
    def __call__(self, context_x, context_y, query_x):
        return Output(self.scale * context_y.mean(), Trace(latent=context_y[:2] + drawn()))


class DrawsInExecute(Mean):
    def __call__(self, context_x, context_y, query_x):
        return Output(self.scale * context_y.mean(), Trace(latent=context_y[:2]))

    def execute(self, z, x):
        return z.sum() + drawn()


class ChangesShape(Mean):
    parts: list
    count = 0

    def __init__(self, config, *, key):
        ChangesShape.count += 1
        self.scale, self.parts = jnp.ones(()), [jnp.ones(2)] * ChangesShape.count


class Determined(Mean):
    """Everything that looks as if it could differ, and does not."""

    activation: object
    table: np.ndarray

    def __init__(self, config, *, key):
        keys = jax.random.split(key)
        self.scale = jax.random.normal(keys[0])
        self.activation = lambda x: jnp.tanh(x) + 0.0
        self.table = np.random.default_rng(0).normal(size=3).astype(np.float32)

    def __call__(self, context_x, context_y, query_x):
        one = jax.pure_callback(lambda: np.float32(1), jax.ShapeDtypeStruct((), jnp.float32))
        noise = jax.random.normal(jax.random.key(3))
        nothing = np.float32(np.nan) * self.table  # not equal to itself
        return Output(one * self.scale * self.activation(context_y.mean()) + noise, Trace(latent=jnp.asarray(nothing)))
'''
