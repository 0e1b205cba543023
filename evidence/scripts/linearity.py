"""Measures how linear tasks are, and how well single modules' tasks add up: `python evidence/scripts/linearity.py`.

Writes "linearity" into measured.json. It has two shares of the variance of a pair's task: that explained by the best
affine function of x, and that explained by the best combination of the tasks of its two modules alone. Both are means
over the pairs of `connected+`, trained or held out, for 20 teachers. Nothing is trained; it takes seconds.
"""

import jax
import jax.numpy as jnp
import numpy as np
from records import write_rows

from recombine.config.preset import preset_config
from recombine.task.episode import sample_input
from recombine.task.latent import sample_latent
from recombine.task.teacher import Teacher, seed_teacher

TEACHERS, TASKS, INPUTS = 20, 8, 4096  # teachers per size, tasks per pair, inputs per task


def main() -> None:
    found = []
    for study in ("quick", "paper"):
        task = preset_config(study, "transformer").task
        for seed in range(TEACHERS):
            teacher = seed_teacher(seed, task.support, input_dim=task.input_dim, hidden_dim=task.hidden_dim)
            for masks, name in ((task.support.masks, "in_dist"), (task.support.held_out, "ood")):
                linear, added = zip(*(shares(teacher, mask, seed) for mask in np.asarray(masks)), strict=True)
                row = {"linear": float(np.mean(linear)), "added": float(np.mean(added))}
                found.append({"study": study, "seed": seed, "split": name} | row)
    write_rows("linearity", found)


def shares(teacher: Teacher, mask: np.ndarray, seed: int) -> tuple[float, float]:
    """The shares of a mask's tasks that are explained by x, and by the tasks of its single modules."""
    x_key, z_key = jax.random.split(jax.random.key(seed))
    x = sample_input(x_key, (INPUTS, teacher.input_dim))
    z = jax.vmap(sample_latent, (0, None))(jax.random.split(z_key, TASKS), jnp.asarray(mask, jnp.float32))
    labels = np.asarray(jax.vmap(teacher.label, (0, None))(z, x)).T
    alone = np.asarray(jax.vmap(teacher.label, (0, None))(jnp.asarray(np.eye(len(mask))[mask > 0], jnp.float32), x)).T
    return explained(np.asarray(x), labels), explained(alone, labels)


def explained(features: np.ndarray, labels: np.ndarray) -> float:
    """The R² of the best affine functions of the features, over all tasks together."""
    design = np.column_stack([features, np.ones(len(features))]).astype(np.float64)
    rest = labels - design @ np.linalg.lstsq(design, labels, rcond=None)[0]
    return float(1 - rest.var(axis=0).sum() / labels.var(axis=0).sum())


if __name__ == "__main__":
    main()
