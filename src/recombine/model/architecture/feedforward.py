"""What the baselines are built of: two-layer networks, and sizes with defaults, checked."""

import equinox as eqx
import jax
from jaxtyping import Array, Float, Key

from recombine.checks import check_size
from recombine.config.model import CustomModelConfig
from recombine.config.schema import Config
from recombine.errors import InputError, suggestion
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


def read_sizes(config: Config, **defaults: int) -> dict[str, int]:
    """The sizes that `model.options` gives, on top of the defaults. Unknown names are errors that suggest another."""
    options = dict(config.model.options) if isinstance(config.model, CustomModelConfig) else {}
    for name, value in options.items():
        field = f"model.options.{name}"
        if name not in defaults:
            known = f"no such option{suggestion(name, list(defaults))}; there are {', '.join(defaults)}"
            raise InputError(field, value, known)
        check_size(field, value)
    sizes = defaults | options
    if sizes["embed_dim"] % sizes.get("num_heads", 1):
        expected = f"must divide embed_dim = {sizes['embed_dim']}"
        raise InputError("model.options.num_heads", sizes["num_heads"], expected)
    return sizes
