"""The whole question in one file: sample tasks, train a hypertransformer, score it on pairs that it never saw.

`python examples/one_file.py` needs only jax and optax. Everything is here: the teacher, the model, the training step,
the score, explicit inference. The sizes are those of the preset `quick`.
"""

import sys

import jax
import jax.numpy as jnp
import optax

M, D, H, N = 6, 8, 8, 16  # modules, inputs, hidden units of a task, length of an episode with its query
WIDTH, HEADS, HIDDEN, BATCH = 32, 4, 32, 128
HELD_OUT = jnp.array([(i, i + 3) for i in range(3)])  # θ₁+θ₄, θ₂+θ₅, θ₃+θ₆
TRAINED = jnp.array([(i, j) for i in range(M) for j in range(i + 1, M) if j - i != 3])  # the other twelve: connected+
normal, uniform = jax.random.normal, jax.random.uniform

# ---- the tasks: y = a · GELU(W x), W = Σ z_m θ_m ----
key_theta, key_a, key_model, key_data, key_test = jax.random.split(jax.random.key(0), 5)
THETA = normal(key_theta, (M, H, D)) / D**0.5
READOUT = normal(key_a, (H,)) / H**0.5


def label(z, x):
    W = jnp.einsum("m,mhd->hd", z, THETA)
    return jax.nn.gelu(x @ (W / jnp.linalg.norm(W, 2)).T, approximate=False) @ READOUT


def sample_episode(key, pairs):
    """N examples of one task; the last is the query. The latent of a pair is ½(1 + u) and ½(2 − u)."""
    key_pair, key_u, key_x = jax.random.split(key, 3)
    u = uniform(key_u)
    i, j = jax.random.choice(key_pair, pairs)
    z = jnp.zeros(M).at[i].set((1 + u) / 2).at[j].set((2 - u) / 2)
    x = uniform(key_x, (N, D), minval=-(3**0.5), maxval=3**0.5)
    return x, label(z, x)


# ---- the model: a transformer infers a latent, the latent generates a layer, the layer predicts ----
def init_model(key):
    keys = iter(jax.random.split(key, 32))
    dense = lambda key, inputs, outputs: normal(key, (inputs, outputs)) / inputs**0.5  # noqa: E731
    sizes = {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    blocks = [{name: dense(next(keys), *size) for name, size in sizes.items()} for _ in range(2)]
    embed, latent, readout = (dense(next(keys), *size) for size in ((D + 1, WIDTH), (WIDTH, M), (HIDDEN, 1)))
    theta = normal(next(keys), (M, HIDDEN, D)) / (M * D) ** 0.5
    return {"embed": embed, "blocks": blocks, "latent": latent, "theta": theta, "readout": readout[:, 0]}


def norm(x):
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-6)


def infer(model, x, y):
    """The latent of a context: two blocks of attention over the pairs (x, y) and a last token of zeros."""
    tokens = jnp.vstack([jnp.column_stack([x, y]), jnp.zeros(D + 1)]) @ model["embed"]
    for block in model["blocks"]:
        q, k, v = (part.reshape(-1, HEADS, WIDTH // HEADS) for part in jnp.split(norm(tokens) @ block["qkv"], 3, -1))
        scores = jax.nn.softmax(jnp.einsum("qhc,khc->hqk", q, k) / (WIDTH // HEADS) ** 0.5)
        tokens += jnp.einsum("hqk,khc->qhc", scores, v).reshape(-1, WIDTH) @ block["out"]
        tokens += jax.nn.gelu(norm(tokens) @ block["up"]) @ block["down"]
    return norm(tokens[-1]) @ model["latent"]


def execute(model, z, x):
    return jax.nn.gelu(x @ jnp.einsum("m,mhd->hd", z, model["theta"]).T) @ model["readout"]


def infer_explicitly(model, z, x, y, steps=3, damping=0.01):
    """Improve a latent on the context by Gauss–Newton steps through the model's own layer."""
    for _ in range(steps):
        J = jax.jacfwd(execute, 1)(model, z, x)
        A = J.T @ J
        move = jnp.linalg.solve(A + damping * jnp.trace(A) / M * jnp.eye(M), J.T @ (y - execute(model, z, x)))
        better = jnp.sum((y - execute(model, z + move, x)) ** 2) < jnp.sum((y - execute(model, z, x)) ** 2)
        z, damping = z + jnp.where(better, move, 0), damping * jnp.where(better, 0.3, 3.0)
    return z


def predict(model, x, y, steps=0):
    """The label of the last x, from the pairs before it."""
    z = infer_explicitly(model, infer(model, x[:-1], y[:-1]), x[:-1], y[:-1], steps)
    return execute(model, z, x[-1])


# ---- training and scoring ----
def r2(model, key, pairs, steps=0, episodes=1024):
    x, y = jax.vmap(sample_episode, (0, None))(jax.random.split(key, episodes), pairs)
    predicted = jax.vmap(lambda x, y: predict(model, x, y, steps))(x, y)
    return 1 - jnp.sum((y[:, -1] - predicted) ** 2) / jnp.sum((y[:, -1] - y[:, :-1].mean(1)) ** 2)


def main(num_steps):
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(1e-3, num_steps)))
    state = optimizer.init(model := init_model(key_model))

    def loss(model, keys):
        x, y = jax.vmap(sample_episode, (0, None))(keys, TRAINED)
        return jnp.mean((y[:, -1] - jax.vmap(lambda x, y: predict(model, x, y))(x, y)) ** 2)

    @jax.jit
    def step(model, state, number):
        keys = jax.random.split(jax.random.fold_in(key_data, number), BATCH)
        value, gradient = jax.value_and_grad(loss)(model, keys)
        updates, state = optimizer.update(gradient, state, model)
        return optax.apply_updates(model, updates), state, value

    for number in range(num_steps):
        model, state, value = step(model, state, number)
        if (number + 1) % max(1, num_steps // 10) == 0:
            print(f"step {number + 1:>6,}  loss {value:.4f}")
    score = jax.jit(r2, static_argnames=("steps", "episodes"))
    for words, pairs in (("trained pairs", TRAINED), ("held-out pairs", HELD_OUT)):
        own, explicit = (score(model, key_test, pairs, steps=steps) for steps in (0, 3))
        print(f"R² on {words}: {own:.3f}; with explicit inference {explicit:.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
