"""The two-layer networks that the baselines are built of."""

import equinox as eqx
import jax
from jaxtyping import Array, Float, Key

from recombine.model.layer.linear import Linear


class Feedforward(eqx.Module):
    """Two affine layers with a GELU between them, over the last axis."""

    expand: Linear
    contract: Linear

    def __init__(self, inputs: int, hidden: int, outputs: int, *, key: Key[Array, ""]):
        expand_key, contract_key = jax.random.split(key)
        self.expand = Linear(inputs, hidden, key=expand_key)
        self.contract = Linear(hidden, outputs, key=contract_key)

    def __call__(self, x: Float[Array, "*rows inputs"]) -> Float[Array, "*rows outputs"]:
        return self.contract(jax.nn.gelu(self.expand(x), approximate=False))
