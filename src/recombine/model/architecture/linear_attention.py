"""The linear transformer of the paper's Appendix A, trained: attention without softmax, no norms.

It has the blocks of `recombine.model.linear_transformer`, with which the appendix builds a hypernetwork by hand. Can
training find such weights?

With `given_latent` it is shown the true latent, as the construction is, and its last token is the latent's. Then the
construction is one setting of its weights, from which training can start (`train.start_from = "construction"`).
"""

from dataclasses import replace
from math import sqrt

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from recombine.checks import check_bool
from recombine.config.model import CustomModelConfig
from recombine.config.schema import Config
from recombine.errors import InputError
from recombine.model.architecture.feedforward import read_sizes
from recombine.model.construction import construct
from recombine.model.interface import Output, Trace
from recombine.model.layer.linear import Linear, as_label
from recombine.model.linear_transformer import LinearBlock, LinearTransformer, init_linear_transformer
from recombine.model.trunk import pair_tokens


class LinearAttention(eqx.Module):
    """((x₁, y₁), …, (x_{N−1}, y_{N−1}), (x_N, 0)) through linear blocks; the readout projects the query token."""

    embedding: Linear
    blocks: LinearTransformer
    readout: Linear
    given_latent: bool = eqx.field(static=True)
    num_modules: int = eqx.field(static=True)

    def __init__(self, config: Config, *, key: Key[Array, ""]):
        self.given_latent, config = _given_latent(config)
        self.num_modules = config.task.num_modules
        sizes = read_sizes(config, embed_dim=128, num_heads=4, num_layers=2, ffn_factor=4)
        width, heads = sizes["embed_dim"], sizes["num_heads"]
        keys = jax.random.split(key, 3)
        inputs = config.task.input_dim + config.task.output_dim + (self.num_modules + 1 if self.given_latent else 0)
        self.embedding = Linear(inputs, width, key=keys[0])
        head = width // heads
        drawn = init_linear_transformer(
            keys[1], sizes["num_layers"], heads, width, head, head, sizes["ffn_factor"] * width
        )
        # Without softmax, a sum over tokens grows with their number. This scale lets every block start of order one.
        scale = 1 / (config.task.episode_length * sqrt(head * heads))
        self.blocks = eqx.tree_at(
            lambda model: [block.W_P for block in model.blocks], drawn, replace_fn=lambda W: scale * W
        )
        self.readout = Linear(width, config.task.output_dim, key=keys[2])

    def __call__(
        self,
        context_x: Float[Array, "context d"],
        context_y: Float[Array, "context *out"],
        query_x: Float[Array, "d"],
    ) -> Output:
        tokens = self._informed_tokens if self.given_latent else pair_tokens
        streams = [self.embedding(tokens(context_x, context_y, query_x))]
        for block in self.blocks.blocks:
            streams.append(block(streams[-1]))
        return Output(as_label(self.readout(streams[-1][-1])), Trace(jnp.stack(streams)))

    def _informed_tokens(
        self,
        context_x: Float[Array, "context d"],
        context_y: Float[Array, "context *out"],
        query_x: Float[Array, "d"],
    ) -> Float[Array, "tokens inputs"]:
        """(x, y, 0, 0) for each pair of the context, (x_N, 0, 0, 1), and (0, 0, z, 0). The first pair shows z."""
        z, pairs = context_x[0, : self.num_modules], pair_tokens(context_x[1:], context_y[1:], query_x)
        last = jnp.zeros_like(pairs, shape=(1, pairs.shape[1] + len(z) + 1)).at[0, pairs.shape[1] : -1].set(z)
        flags = jnp.zeros_like(pairs, shape=(len(pairs), len(z) + 1)).at[-1, -1].set(1)
        return jnp.concatenate([jnp.concatenate([pairs, flags], axis=1), last])


def from_construction(
    model: LinearAttention, theta: Float[Array, "M h d"], a: Float[Array, "*out h"]
) -> LinearAttention:
    """The model with weights by which it computes aᵀ σ(Σ_m z_m θ_m x_N) exactly, as in Appendix A.

    The first M heads and h feed-forward units of the first block are those of `construct`. The others, and the further
    blocks, write nothing: their last weights are 0, and the weights before them keep their random values, so that
    training can make use of them.
    """
    (M, h, d), A = theta.shape, jnp.atleast_2d(a)
    o, built = len(A), construct(theta, A).blocks[0]
    d_m, width = built.W_1.shape[0], model.embedding.weight.shape[1]
    first, *rest = model.blocks.blocks
    heads, _, head = first.W_q.shape
    for name, found, least in (("embed_dim", width, d_m), ("num_heads", heads, M), ("embed_dim/num_heads", head, h)):
        if found < least:
            raise InputError(f"model.options.{name}", found, f"at least {least}, for the construction of these sizes")
    x_slot, z_slot, rest_slot = slice(0, d), slice(d, d + M), slice(d + M, d_m)
    embed = jnp.zeros_like(model.embedding.weight)
    embed = embed.at[:d, x_slot].set(jnp.eye(d)).at[d + o : d + o + M, z_slot].set(jnp.eye(M)).at[-1, rest_slot].set(1)
    block = LinearBlock(
        W_q=first.W_q.at[:M, :, 0].set(0).at[:M, :d_m, 0].set(built.W_q[:, :, 0]),
        W_k=jnp.zeros_like(first.W_k).at[:M, :d_m, 0].set(built.W_k[:, :, 0]),
        W_v=first.W_v.at[:M, :, :h].set(0).at[:M, :d_m, :h].set(built.W_v),
        W_P=jnp.zeros_like(first.W_P).at[:M, :h, :d_m].set(built.W_P),
        W_1=first.W_1.at[:, :h].set(0).at[:d_m, :h].set(built.W_1),
        W_2=jnp.zeros_like(first.W_2).at[:h, :d_m].set(built.W_2),
    )
    silent = [eqx.tree_at(lambda b: (b.W_P, b.W_2), other, replace_fn=jnp.zeros_like) for other in rest]
    readout = jnp.zeros_like(model.readout.weight).at[d_m - o : d_m].set(jnp.eye(o))
    zero = jnp.zeros_like
    return eqx.tree_at(
        lambda m: (m.embedding.weight, m.embedding.bias, m.blocks, m.readout.weight, m.readout.bias),
        model,
        (embed, zero(model.embedding.bias), LinearTransformer((block, *silent)), readout, zero(model.readout.bias)),
    )


def _given_latent(config: Config) -> tuple[bool, Config]:
    """The option `given_latent`, and the configuration without it: all other options are sizes."""
    if not isinstance(config.model, CustomModelConfig):
        return False, config
    options = dict(config.model.options)
    given = options.pop("given_latent", False)
    check_bool("model.options.given_latent", given)
    if given and config.task.input_dim < config.task.num_modules:
        expected = f"needs task.input_dim ≥ {config.task.num_modules} modules"
        raise InputError("model.options.given_latent", given, expected)
    return given, replace(config, model=replace(config.model, options=tuple(options.items())))
