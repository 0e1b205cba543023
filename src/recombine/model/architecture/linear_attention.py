"""The linear transformer of the paper's Appendix A, trained: attention without softmax, no norms.

It has the blocks of `recombine.model.linear_transformer`, with which the appendix builds a hypernetwork by hand. Can
training find such weights?
"""

from math import sqrt

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from recombine.config.schema import Config
from recombine.model.architecture.options import read_sizes
from recombine.model.interface import Output, Trace
from recombine.model.layer.linear import Linear
from recombine.model.linear_transformer import LinearTransformer, init_linear_transformer
from recombine.model.trunk import pair_tokens


class LinearAttention(eqx.Module):
    """((x₁, y₁), …, (x_{N−1}, y_{N−1}), (x_N, 0)) through linear blocks; the readout projects the query token."""

    embedding: Linear
    blocks: LinearTransformer
    readout: Linear

    def __init__(self, config: Config, *, key: Key[Array, ""]):
        sizes = read_sizes(config, embed_dim=128, num_heads=4, num_layers=2, ffn_factor=4)
        width, heads = sizes["embed_dim"], sizes["num_heads"]
        keys = jax.random.split(key, 3)
        self.embedding = Linear(config.task.input_dim + 1, width, key=keys[0])
        head = width // heads
        drawn = init_linear_transformer(
            keys[1], sizes["num_layers"], heads, width, head, head, sizes["ffn_factor"] * width
        )
        # Without softmax, a sum over tokens grows with their number. This scale lets every block start of order one.
        scale = 1 / (config.task.episode_length * sqrt(head * heads))
        self.blocks = eqx.tree_at(
            lambda model: [block.W_P for block in model.blocks], drawn, replace_fn=lambda W: scale * W
        )
        self.readout = Linear(width, 1, key=keys[2])

    def __call__(
        self,
        context_x: Float[Array, "context d"],
        context_y: Float[Array, "context"],
        query_x: Float[Array, "d"],
    ) -> Output:
        streams = [self.embedding(pair_tokens(context_x, context_y, query_x))]
        for block in self.blocks.blocks:
            streams.append(block(streams[-1]))
        return Output(self.readout(streams[-1][-1])[0], Trace(jnp.stack(streams)))
