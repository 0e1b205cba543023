"""The floating-point operations of a training step on the fast path, counted by hand.

Only matrix products count, two operations for each multiply-add; norms, softmax and GELU come on top, a few per cent.
Products of weights with weights are counted once for the batch. `recombine.model.fast` has the letters.
"""

from recombine.config.schema import Config, HypertransformerConfig, TrunkConfig

# A product X W has two in its backward pass, G Wᵀ and Xᵀ G, each as large. The products with the data itself, which
# need one of them only, are too few to tell apart.
PASSES = 3


def step_flops(config: Config) -> int:
    """Of one training step: forward and backward. Sampling and the optimiser have next to no products."""
    return PASSES * forward_flops(config)


def forward_flops(config: Config) -> int:
    """Of the fast path's predictions for one batch."""
    model, num_tokens = config.model, config.task.episode_length
    assert isinstance(model, TrunkConfig)
    H, D, L = model.num_heads, model.embed_dim, model.num_layers
    feedforward = _product(1, D, model.ffn_factor * D) + _product(1, model.ffn_factor * D, D)
    weights, episode = _first_attention(config)
    if L > 1:
        episode += num_tokens * feedforward  # of the first block; the last one's is below
        between = 4 * _product(num_tokens, D, D) + 2 * _product(num_tokens, D, num_tokens) + num_tokens * feedforward
        episode += (L - 2) * between
        # The last block: query, key, value and output for one token, and its scores and sum over all tokens.
        episode += 4 * _product(1, D, D) + 2 * _product(H, D, num_tokens)
    episode += feedforward + _read_out(config)
    return weights + config.optimizer.batch_size * episode


def _first_attention(config: Config) -> tuple[int, int]:
    """Of the weights among themselves, and of one episode: the embedding, and the attention folded into it."""
    model, N = config.model, config.task.episode_length
    assert isinstance(model, TrunkConfig)
    H, D = model.num_heads, model.embed_dim
    r = config.task.input_dim + 2
    weights = _product(r, D, r) + 4 * _product(r + 1, D, D) + _product(r + 1, D, r + 1)
    rows = N if model.num_layers > 1 else 1  # the only block is the last one, needed for the last token alone
    variance = _product(N, r, r)
    form = _product(rows, r + 1, H * (r + 1))
    scores_and_sum = 2 * _product(rows * H, r + 1, N)
    stream = _product(rows, r, D) + _product(rows, H * (r + 1), D)
    return weights, variance + form + scores_and_sum + stream


def _read_out(config: Config) -> int:
    model, d = config.model, config.task.input_dim
    assert isinstance(model, TrunkConfig)
    if not isinstance(model, HypertransformerConfig):
        return _product(1, model.embed_dim, 1)
    generated = _product(1, model.latent_dim, model.hidden_dim * d)
    return (
        _product(1, model.embed_dim, model.latent_dim)
        + generated
        + _product(model.hidden_dim, d, 1)
        + _product(1, model.hidden_dim, 1)
    )


def _product(rows: int, inner: int, columns: int) -> int:
    return 2 * rows * inner * columns
