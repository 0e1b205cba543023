"""Both models, written again in NumPy and float64 from their saved weights alone: the oracle of the forward pass.

Loops over tokens and heads, no code shared with the package.
"""

from math import erf, exp, floor, log, sqrt

import numpy as np

Weights = dict[str, np.ndarray]


def gelu(u: np.ndarray) -> np.ndarray:
    return np.array([value * (1 + erf(value / sqrt(2))) / 2 for value in u.ravel()]).reshape(u.shape)


def linear(weights: Weights, name: str, x: np.ndarray) -> np.ndarray:
    return x @ weights[f"{name}.weight"].astype(float) + weights[f"{name}.bias"].astype(float)


def layer_norm(weights: Weights, name: str, x: np.ndarray) -> np.ndarray:
    normal = (x - x.mean()) / sqrt(x.var() + 1e-5)
    return normal * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def t5_bucket(distance: int, bidirectional: bool, buckets: int = 32, farthest: int = 128) -> int:
    """Raffel et al. 2020: 32 buckets, exact for near tokens, logarithmic up to 128."""
    base = 0
    if bidirectional:
        buckets = buckets // 2
        base = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return base + distance
    return base + min(
        exact + floor(log(distance / exact) / log(farthest / exact) * (buckets - exact) + 1e-9), buckets - 1
    )


def attention(
    weights: Weights, prefix: str, table: np.ndarray | None, X: np.ndarray, heads: int, causal: bool, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    tokens, embed = X.shape
    size = embed // heads
    q, k, v = (np.array([linear(weights, f"{prefix}.{name}", x) for x in X]) for name in ("query", "key", "value"))
    gathered = np.zeros_like(X)
    pattern = np.zeros((heads, tokens, tokens))
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        for i in range(tokens):
            visible = range(i + 1 if causal else tokens)
            scores = [float(q[i, part] @ k[j, part]) * scale for j in visible]
            if table is not None:
                both, n = not causal and table.shape[1] == 32, table.shape[1]
                buckets = [t5_bucket(j - i, both, n, 128 if n == 32 else n) for j in visible]
                scores = [s + float(table[head, b]) for b, s in zip(buckets, scores, strict=True)]
            total = sum(exp(s - max(scores)) for s in scores)
            for j, s in zip(visible, scores, strict=True):
                pattern[head, i, j] = exp(s - max(scores)) / total
            gathered[i, part] = sum(pattern[head, i, j] * v[j, part] for j in visible)
    return np.array([linear(weights, f"{prefix}.output", row) for row in gathered]), pattern


def trunk(
    weights: Weights, tokens: np.ndarray, heads: int, layers: int, causal: bool, scaled: bool
) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """The read-out token after the final norm, the residual stream, and the attention patterns."""
    X = np.array([linear(weights, "trunk.embedding", token) for token in tokens])
    scale = 1 / sqrt(X.shape[1] // heads) if scaled else 1.0
    residual, patterns = [X], []
    for layer in range(layers):
        block = f"trunk.blocks.{layer}"
        own, shared = f"trunk.position_biases.{layer}.table", "trunk.position_biases.0.table"
        table = weights.get(own, weights.get(shared))
        normed = np.array([layer_norm(weights, f"{block}.attention_norm", x) for x in X])
        gathered, pattern = attention(weights, f"{block}.attention", table, normed, heads, causal, scale)
        X = X + gathered
        normed = np.array([layer_norm(weights, f"{block}.feedforward_norm", x) for x in X])
        hidden = gelu(np.array([linear(weights, f"{block}.feedforward.expand", x) for x in normed]))
        X = X + np.array([linear(weights, f"{block}.feedforward.contract", x) for x in hidden])
        residual.append(X)
        patterns.append(pattern)
    last = X[-1]
    if "trunk.final_norm.weight" in weights:
        last = layer_norm(weights, "trunk.final_norm", last)
    return last, residual, patterns


def tokens_of(context_x: np.ndarray, context_y: np.ndarray, last_x: np.ndarray) -> np.ndarray:
    rows = [[*x, y] for x, y in zip(context_x, context_y, strict=True)]
    return np.array([*rows, [*last_x, 0.0]], float)


def transformer(weights: Weights, context_x, context_y, query_x, **options):
    last, residual, patterns = trunk(weights, tokens_of(context_x, context_y, query_x), **options)
    return linear(weights, "readout", last)[0], residual, patterns


def hypertransformer(
    weights: Weights, context_x, context_y, query_x, unit_norm: bool = False, factor: float = 1.0, **options
):
    last, residual, patterns = trunk(weights, tokens_of(context_x, context_y, 0 * query_x), **options)
    z = linear(weights, "latent", last)
    W = sum((z_m * theta_m.astype(float) for z_m, theta_m in zip(z, weights["theta"], strict=True)), start=0.0)
    W = factor * (W + weights.get("base", 0.0))
    if unit_norm:
        W = W / np.sqrt(np.linalg.eigvalsh(W.T @ W)[-1])
    return linear(weights, "readout", gelu(W @ query_x.astype(float)))[0], residual, patterns, z
