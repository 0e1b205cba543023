"""The fast path: exactly the predictions and gradients of the plain model, with less arithmetic.

Two facts make it possible. After the last block, the prediction reads a single token, the last. Before the first
block, a token is a linear map of the r = d + o + 1 numbers t = (x, y, 1). It follows exactly:

- *Read-out only.* The last block is computed for the read-out token alone.
- *Associativity.* Its scores are q·(h W_k) = (q W_kᵀ)·h, and its output is Σ w_n (h_n W_v) = (Σ w_n h_n) W_v, so that
  no key or value is ever formed. (A key's bias shifts all scores of a row alike, which softmax ignores.)
- *Folding.* The first LayerNorm is linear in u = (t/σ, 1), r + 1 numbers, with σ² = t C Cᵀ tᵀ / D + ε for the centred
  embedding C. So the first block's scores are a quadratic form in u, and its output is linear in the weighted sum of
  the u_n: no product there is wider than r + 1.
- *The sum for free.* The last entry of u is 1, so the last entry of Σ exp(s_n) u_n is the softmax's denominator; in
  the backward pass the same entry carries the term that softmax subtracts.

The backward passes of the products, of GELU and of the first attention are written out: left to automatic
differentiation, XLA multiplies the weights' gradients in a layout 2–3 times slower, and computes GELU's erf twice.
`docs/performance.md` has the measurements.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from recombine.model.interface import BatchOutput
from recombine.model.layer.attention import MultiHeadAttention
from recombine.model.layer.block import Block, Feedforward
from recombine.model.layer.gelu import gelu
from recombine.model.layer.linear import Linear
from recombine.model.trunk import Trunk, TrunkModel


def fast_forward(
    model: TrunkModel,
    context_x: Float[Array, "B context d"],
    context_y: Float[Array, "B context *out"],
    query_x: Float[Array, "B d"],
    keys: Key[Array, "B"] | None = None,
) -> BatchOutput:
    """The predictions of `jax.vmap(model)`, and the last token's part of its trace. With keys, there is dropout."""
    tokens = jax.vmap(model.tokens)(context_x, context_y, query_x)
    streams = _last_streams(model.trunk, tokens, keys)
    y, latent = jax.vmap(model.read_out)(streams[-1][:, None], context_x, context_y, query_x)
    return BatchOutput(y, jnp.stack(streams, axis=1), latent)


def _last_streams(
    trunk: Trunk, tokens: Float[Array, "B N pair"], keys: Key[Array, "B"] | None
) -> list[Float[Array, "B D"]]:
    """The residual stream of the last token: after the embedding, and after each block."""
    B, N, _ = tokens.shape
    first, *others = trunk.blocks
    streams = [trunk.embedding(tokens[:, -1])]
    X = _first_attention(trunk, tokens, _kept(trunk, keys, 0, N, only_last=not others), only_last=not others)
    X = X + _feedforward(first, X)
    for layer, block in enumerate(others, start=1):
        streams.append(X.reshape(B, N, -1)[:, -1])
        h = jax.vmap(block.attention_norm)(X).reshape(B, N, -1)
        bias, kept = _bias(trunk, layer, N), _kept(trunk, keys, layer, N, only_last=layer == len(others))
        if layer == len(others):
            X = X.reshape(h.shape)[:, -1] + _attend_from_last(block.attention, h, bias, kept)
        else:
            X = X + _attend(block.attention, h, bias, kept)
        X = X + _feedforward(block, X)
    return [*streams, X]


def _first_attention(
    trunk: Trunk, tokens: Float[Array, "B N pair"], kept: Float[Array, "B H ..."] | None, only_last: bool
) -> Float[Array, "rows D"]:
    """The stream after the first block's attention: a row per token of each episode, or only for the last token."""
    B, N, _ = tokens.shape
    block, embedding = trunk.blocks[0], trunk.embedding
    attention, norm = block.attention, block.attention_norm
    assert norm.weight is not None
    assert norm.bias is not None
    H = attention.num_heads
    ones = jnp.ones_like(tokens, shape=(B, N, 1))
    t = jnp.concatenate([tokens, ones], axis=-1)
    E = jnp.concatenate([embedding.weight, embedding.bias[None]])  # the embedding is t E
    r, D = E.shape
    C = E - E.mean(axis=1, keepdims=True)
    rows = t.reshape(B * N, r)
    variance = (_product(rows, C @ C.T / D) * rows).sum(axis=-1).reshape(B, N, 1)
    u = jnp.concatenate([t * jax.lax.rsqrt(variance + norm.eps), ones], axis=-1)
    A = jnp.concatenate([C * norm.weight, norm.bias[None]])  # LayerNorm(t E) = u A

    A_q, A_k, A_v = (_heads(A @ linear.weight, H) for linear in (attention.query, attention.key, attention.value))
    A_q = A_q.at[:, -1].add(attention.query.bias.reshape(H, -1))
    A_v = A_v.at[:, -1].add(attention.value.bias.reshape(H, -1))
    # The scores of each head are u form uᵀ.
    form = (A_q @ A_k.swapaxes(1, 2) * attention.scale).swapaxes(0, 1).reshape(r + 1, -1)
    out = (A_v @ attention.output.weight.reshape(H, -1, D)).reshape(-1, D)

    bias = _bias(trunk, 0, N)
    if only_last:
        p = (u[:, -1] @ form).reshape(B, H, r + 1)
        gathered = (_weights_from_last(p, u, bias, kept) @ u).reshape(B, -1)
        return t[:, -1] @ E + gathered @ out + attention.output.bias
    p = _product(u.reshape(B * N, -1), form).reshape(B, N, H, -1).swapaxes(1, 2)
    p, bias = p.reshape(B, H * N, -1), None if bias is None else bias.reshape(H * N, N)
    gathered = _gather(p, u, bias) if kept is None else _gather_kept(p, u, bias, kept.reshape(B, H * N, N))
    gathered = gathered.reshape(B, H, N, -1).swapaxes(1, 2).reshape(B * N, -1)
    return _product(rows, E) + _product(gathered, out) + attention.output.bias


def _attend(
    attention: MultiHeadAttention,
    h: Float[Array, "B N D"],
    bias: Float[Array, "H N N"] | None,
    kept: Float[Array, "B H N N"] | None,
) -> Float[Array, "rows D"]:
    """Ordinary attention, for the blocks between the first and the last."""
    B, N, D = h.shape
    rows = h.reshape(B * N, D)
    q, k, v = (
        _linear(linear, rows).reshape(B, N, attention.num_heads, -1).swapaxes(1, 2)
        for linear in (attention.query, attention.key, attention.value)
    )
    scores = q @ k.swapaxes(2, 3) * attention.scale
    weights = _drop(jax.nn.softmax(scores if bias is None else scores + bias, axis=-1), kept)
    return _linear(attention.output, (weights @ v).swapaxes(1, 2).reshape(B * N, D))


def _attend_from_last(
    attention: MultiHeadAttention,
    h: Float[Array, "B N D"],
    bias: Float[Array, "H N N"] | None,
    kept: Float[Array, "B H N"] | None,
) -> Float[Array, "B D"]:
    """The attention output of the last block at the last token, without forming keys and values."""
    H = attention.num_heads
    W_k, W_v = _heads(attention.key.weight, H), _heads(attention.value.weight, H)
    q = attention.query(h[:, -1]).reshape(len(h), H, -1)
    p = jnp.einsum("bhe,hde->bhd", q, W_k) * attention.scale
    weights = _weights_from_last(p, h, bias, kept)
    gathered = jnp.einsum("bhd,hde->bhe", weights @ h, W_v)
    if kept is None:  # the weights add up to 1
        return attention.output(gathered.reshape(len(h), -1) + attention.value.bias)
    gathered = gathered + weights.sum(axis=-1, keepdims=True) * attention.value.bias.reshape(H, -1)
    return attention.output(gathered.reshape(len(h), -1))


def _weights_from_last(
    p: Float[Array, "B H r"],
    u: Float[Array, "B N r"],
    bias: Float[Array, "H N N"] | None,
    kept: Float[Array, "B H N"] | None,
) -> Float[Array, "B H N"]:
    """softmax(p uᵀ + bias) for the last token's p."""
    scores = p @ u.swapaxes(1, 2)
    return _drop(jax.nn.softmax(scores if bias is None else scores + bias[:, -1], axis=-1), kept)


def _gather_kept(
    p: Float[Array, "B HN r"], u: Float[Array, "B N r"], bias: Float[Array, "HN N"] | None, kept: Float[Array, "B HN N"]
) -> Float[Array, "B HN r"]:
    """As `_gather`, with dropout."""
    scores = p @ u.swapaxes(1, 2)
    return _drop(jax.nn.softmax(scores if bias is None else scores + bias, axis=-1), kept) @ u


def _kept(
    trunk: Trunk, keys: Key[Array, "B"] | None, layer: int, num_tokens: int, only_last: bool
) -> Float[Array, "B H ..."] | None:
    """The factors by which dropout multiplies the attention weights, of all tokens or of the last one alone."""
    if keys is None:
        return None
    if only_last:
        return jax.vmap(lambda key: trunk.kept(key, layer, num_tokens - 1, num_tokens))(keys)
    return jax.vmap(lambda key: trunk.kept_by_all(key, layer, num_tokens))(keys)


def _drop(weights: Float[Array, "..."], kept: Float[Array, "..."] | None) -> Float[Array, "..."]:
    return weights if kept is None else weights * kept.astype(weights.dtype)


def _feedforward(block: Block, X: Float[Array, "rows D"]) -> Float[Array, "rows D"]:
    feedforward: Feedforward = block.feedforward
    h = jax.vmap(block.feedforward_norm)(X)
    return _linear(feedforward.contract, gelu(_linear(feedforward.expand, h)))


def _bias(trunk: Trunk, layer: int, num_tokens: int) -> Float[Array, "H N N"] | None:
    """The position bias, with −∞ where a causal model may not attend."""
    bias, attention = trunk.position_bias(layer, num_tokens), trunk.blocks[layer].attention
    if not attention.causal:
        return bias
    hidden = jnp.where(jnp.tri(num_tokens, dtype=bool), 0.0, -jnp.inf)
    return jnp.broadcast_to(hidden, (attention.num_heads, *hidden.shape)) if bias is None else bias + hidden


def _heads(W: Float[Array, "rows D"], num_heads: int) -> Float[Array, "H rows head_dim"]:
    return W.reshape(len(W), num_heads, -1).swapaxes(0, 1)


def _linear(linear: Linear, X: Float[Array, "rows inputs"]) -> Float[Array, "rows outputs"]:
    return _product(X, linear.weight) + linear.bias


@jax.custom_vjp
def _product(X: Float[Array, "rows i"], W: Float[Array, "i o"]) -> Float[Array, "rows o"]:
    return X @ W


def _weight_gradient(X: Float[Array, "rows i"], G: Float[Array, "rows o"]) -> Float[Array, "i o"]:
    return _transposed(X) @ G


def _transposed(X: Float[Array, "*batch m n"]) -> Float[Array, "*batch n m"]:
    """Xᵀ, written to memory. Without the barrier XLA fuses it into the product, which takes twice as long or more."""
    return jax.lax.optimization_barrier(X.swapaxes(-1, -2))


_product.defvjp(lambda X, W: (X @ W, (X, W)), lambda saved, G: (G @ saved[1].T, _weight_gradient(saved[0], G)))


@jax.custom_vjp
def _gather(
    p: Float[Array, "B HN r"], u: Float[Array, "B N r"], bias: Float[Array, "HN N"] | None
) -> Float[Array, "B HN r"]:
    """softmax(p uᵀ + bias) u, where the last entry of every u is 1."""
    return _gather_forward(p, u, bias)[0]


def _gather_forward(p, u, bias):
    scores = jnp.matmul(p, u.swapaxes(1, 2), preferred_element_type=jnp.promote_types(p.dtype, jnp.float32))
    scores = scores if bias is None else scores + bias
    e = jnp.exp(scores - scores.max(axis=-1, keepdims=True)).astype(u.dtype)
    total = e @ u
    denominator = total[..., -1:]
    gathered = total / denominator
    return gathered, (p, u, bias, e, gathered, denominator)


def _gather_backward(saved, G):
    p, u, bias, e, gathered, denominator = saved
    # dscores = e/Z ⊙ (G uᵀ − G·gathered). The subtraction goes into G's last column, because u's last entry is 1.
    scaled = G / denominator
    shifted = scaled.at[..., -1].add(-(scaled * gathered).sum(axis=-1))
    dscores = e * (shifted @ u.swapaxes(1, 2))
    du = (_transposed(p) @ dscores + _transposed(scaled) @ e).swapaxes(1, 2)
    return dscores @ u, du, None if bias is None else _sum_over_batch(dscores)


def _sum_over_batch(A: Float[Array, "B m n"]) -> Float[Array, "m n"]:
    """The sum as a product with ones: XLA's own sum is 3 times slower on one thread, and 80 times on two at N = 128."""
    B, m, n = A.shape
    return (jnp.ones_like(A, shape=(B,)) @ A.reshape(B, m * n)).reshape(m, n)


_gather.defvjp(_gather_forward, _gather_backward)
