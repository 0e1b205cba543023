"""The trunk that both models share: tokens in, residual stream out.

Paper: Appendix C.3.1 (app:architecture), "Vanilla transformer".
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from recombine.config.model import TrunkConfig
from recombine.errors import InputError
from recombine.model.interface import Output, Trace
from recombine.model.layer.block import Block
from recombine.model.layer.linear import Linear
from recombine.model.layer.position import MAX_DISTANCE, NUM_BUCKETS, PositionBias


class Trunk(eqx.Module):
    """Embedding, blocks and final norm. They can be called one by one: a measure may stop between two blocks, change
    the residual stream, and continue."""

    embedding: Linear
    blocks: tuple[Block, ...]
    position_biases: tuple[PositionBias, ...]
    """One per block, one for all blocks, or none."""
    final_norm: eqx.nn.LayerNorm | None
    dropout: float = eqx.field(static=True)

    def __init__(
        self,
        config: TrunkConfig,
        input_dim: int,
        episode_length: int | None = None,
        *,
        output_dim: int = 1,
        key: Key[Array, ""],
    ):
        """`episode_length` is needed only for one-directional position buckets."""
        embedding_key, blocks_key, positions_key = jax.random.split(key, 3)
        self.embedding = Linear(input_dim + output_dim, config.embed_dim, key=embedding_key)
        self.blocks = tuple(Block(config, key=k) for k in jax.random.split(blocks_key, config.num_layers))
        num_tables = {"per_block": config.num_layers, "shared": 1, "none": 0}[config.position_bias]
        one_directional = config.position_buckets == "one_directional"
        if one_directional and episode_length is None:
            expected = "t5: the model does not tell its trunk the length of an episode"
            raise InputError("model.position_buckets", config.position_buckets, expected)
        sizes = (episode_length, episode_length) if one_directional and episode_length else (NUM_BUCKETS, MAX_DISTANCE)
        self.position_biases = tuple(
            PositionBias(config.num_heads, not (config.causal or one_directional), *sizes, key=k)
            for k in jax.random.split(positions_key, config.num_layers)[:num_tables]
        )
        self.final_norm = eqx.nn.LayerNorm(config.embed_dim, dtype=jnp.float32) if config.final_norm else None
        self.dropout = config.dropout

    def position_bias(self, layer: int, num_tokens: int) -> Float[Array, "heads tokens tokens"] | None:
        """The position bias that block `layer` (counted from 0) adds to its attention scores."""
        biases = self.position_biases
        return biases[min(layer, len(biases) - 1)](num_tokens) if biases else None

    def kept(
        self, key: Key[Array, ""] | None, layer: int, token: Int[Array, ""] | int, num_tokens: int
    ) -> Float[Array, "heads tokens"] | None:
        """The factors of a token's attention weights in block `layer`: 0 where dropped, else 1/(1 − dropout).

        None without a key: nothing is dropped outside training. Each token draws with a key of its own, so that the
        fast path can draw those of the last token alone.
        """
        if key is None or not self.dropout:
            return None
        key = jax.random.fold_in(jax.random.fold_in(key, layer), token)
        num_heads = self.blocks[layer].attention.num_heads
        return jax.random.bernoulli(key, 1 - self.dropout, (num_heads, num_tokens)) / (1 - self.dropout)

    def kept_by_all(
        self, key: Key[Array, ""] | None, layer: int, num_tokens: int
    ) -> Float[Array, "heads tokens tokens"] | None:
        """`kept` of every token."""
        draw = jax.vmap(lambda token: self.kept(key, layer, token, num_tokens), out_axes=1)
        return draw(jnp.arange(num_tokens))

    def apply_block(
        self, layer: int, X: Float[Array, "tokens embed"], key: Key[Array, ""] | None = None
    ) -> tuple[Float[Array, "tokens embed"], Float[Array, "heads tokens tokens"]]:
        """The stream after block `layer` (counted from 0), and the attention weights. With a key, there is dropout."""
        return self.blocks[layer](X, self.position_bias(layer, len(X)), self.kept_by_all(key, layer, len(X)))

    def read(self, X: Float[Array, "tokens embed"]) -> Float[Array, "embed"]:
        """The input of the read-out: the last token, normalised."""
        return X[-1] if self.final_norm is None else self.final_norm(X[-1])


class TrunkModel(eqx.Module):
    """A model built on the trunk: embed → blocks → read_out."""

    trunk: eqx.AbstractVar[Trunk]

    @abstractmethod
    def tokens(
        self,
        context_x: Float[Array, "context d"],
        context_y: Float[Array, "context *out"],
        query_x: Float[Array, "d"],
    ) -> Float[Array, "tokens pair"]:
        """The pairs (x, y) that the trunk sees."""

    def embed(
        self,
        context_x: Float[Array, "context d"],
        context_y: Float[Array, "context *out"],
        query_x: Float[Array, "d"],
    ) -> Float[Array, "tokens embed"]:
        """The residual stream before the first block."""
        return self.trunk.embedding(self.tokens(context_x, context_y, query_x))

    @abstractmethod
    def read_out(
        self,
        X: Float[Array, "tokens embed"],
        context_x: Float[Array, "context d"],
        context_y: Float[Array, "context *out"],
        query_x: Float[Array, "d"],
    ) -> tuple[Float[Array, "*out"], Float[Array, "latent"] | None]:
        """The prediction, and the latent if the model infers one, from the stream after the last block."""

    def __call__(
        self,
        context_x: Float[Array, "context d"],
        context_y: Float[Array, "context *out"],
        query_x: Float[Array, "d"],
        *,
        key: Key[Array, ""] | None = None,
    ) -> Output:
        X = self.embed(context_x, context_y, query_x)
        residual, attention = [X], []
        for layer in range(len(self.trunk.blocks)):
            X, weights = self.trunk.apply_block(layer, X, key)
            residual.append(X)
            attention.append(weights)
        y, latent = self.read_out(X, context_x, context_y, query_x)
        return Output(y, Trace(jnp.stack(residual), jnp.stack(attention), latent))


def pair_tokens(
    context_x: Float[Array, "context d"], context_y: Float[Array, "context *out"], last_x: Float[Array, "d"]
) -> Float[Array, "tokens pair"]:
    """(x₁, y₁), …, (x_{N−1}, y_{N−1}), (last_x, 0), each pair a token."""
    x = jnp.concatenate([context_x, last_x[None]])
    y = jnp.concatenate([context_y, jnp.zeros_like(context_y, shape=(1, *context_y.shape[1:]))])
    return jnp.column_stack([x, y])
