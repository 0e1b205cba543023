"""The floating-point operations of a training step on the fast path, counted by hand.

Only matrix products are counted, with two operations for each multiply-add; norms, softmax and GELU would add a few
per cent. Products of weights with weights are counted once per batch. `recombine.model.fast` defines the letters.
"""

from recombine.config.model import HypertransformerConfig, TrunkConfig
from recombine.config.schema import Config

# The backward pass of a product X W has two products of the same size, G Wᵀ and Xᵀ G. Products with the data need only
# the second, but there are too few of them to matter.
PASSES = 3


def step_flops(config: Config) -> int:
    """The operations of one training step: forward and backward. Sampling and the optimiser are negligible."""
    return PASSES * forward_flops(config)


def forward_flops(config: Config) -> int:
    """The operations of the fast path's forward pass on one batch."""
    model, num_tokens = config.model, config.task.episode_length
    assert isinstance(model, TrunkConfig)
    H, D, L = model.num_heads, model.embed_dim, model.num_layers
    feedforward = _product(1, D, model.ffn_factor * D) + _product(1, model.ffn_factor * D, D)
    weights, episode = _first_attention(config)
    if L > 1:
        episode += num_tokens * feedforward  # the first block's feedforward; the last block's is added below
        between = 4 * _product(num_tokens, D, D) + 2 * _product(num_tokens, D, num_tokens) + num_tokens * feedforward
        episode += (L - 2) * between
        # The last block: query, key, value and output for one token; its scores, and the weighted sum over all tokens.
        episode += 4 * _product(1, D, D) + 2 * _product(H, D, num_tokens)
    episode += feedforward + _read_out(config)
    return weights + config.optimizer.batch_size * episode


def _first_attention(config: Config) -> tuple[int, int]:
    """The operations of the embedding and the folded first attention: on weights only (per batch), and per episode."""
    model, N = config.model, config.task.episode_length
    assert isinstance(model, TrunkConfig)
    H, D = model.num_heads, model.embed_dim
    r = config.task.input_dim + config.task.output_dim + 1
    weights = _product(r, D, r) + 4 * _product(r + 1, D, D) + _product(r + 1, D, r + 1)
    rows = N if model.num_layers > 1 else 1  # a single block is also the last, computed for the last token alone
    variance = _product(N, r, r)
    form = _product(rows, r + 1, H * (r + 1))
    scores_and_sum = 2 * _product(rows * H, r + 1, N)
    stream = _product(rows, r, D) + _product(rows, H * (r + 1), D)
    return weights, variance + form + scores_and_sum + stream


def _read_out(config: Config) -> int:
    model, d, o = config.model, config.task.input_dim, config.task.output_dim
    assert isinstance(model, TrunkConfig)
    if not isinstance(model, HypertransformerConfig):
        return _product(1, model.embed_dim, o)
    generated = _product(1, model.latent_dim, model.hidden_dim * d)
    return (
        _explicit_inference(config)
        + _product(1, model.embed_dim, model.latent_dim)
        + generated
        + _product(model.hidden_dim, d, 1)
        + _product(1, model.hidden_dim, o)
    )


def _explicit_inference(config: Config) -> int:
    """For each step: the generated layer on every example, its Jacobian, and the system of equations.

    Jacobian and system have a row for each output of each example.
    """
    model, examples, d, o = config.model, config.task.episode_length - 1, config.task.input_dim, config.task.output_dim
    assert isinstance(model, HypertransformerConfig)
    latent, hidden = model.latent_dim, model.hidden_dim
    layer = _product(1, latent, hidden * d) + _product(examples, d, hidden) + _product(examples, hidden, o)
    jacobian = _product(examples * o, hidden, latent * d) + _product(examples * o, d, latent)
    system = _product(latent, examples * o, latent + 1)
    return model.inference_steps * (layer + jacobian + system)


def _product(rows: int, inner: int, columns: int) -> int:
    return 2 * rows * inner * columns
