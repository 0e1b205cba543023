"""AdamW with cosine annealing, after clipping by the global norm.

Paper: Tables 2 and 3.
"""

import jax
import optax

from recombine.config.schema import OptimizerConfig
from recombine.errors import InputError


def learning_rate(config: OptimizerConfig) -> optax.Schedule:
    """A linear warm-up, if configured, then a cosine from the learning rate down to `final_fraction` of it."""
    return optax.warmup_cosine_decay_schedule(
        init_value=0.0 if config.warmup_steps else config.learning_rate,
        peak_value=config.learning_rate,
        warmup_steps=config.warmup_steps,
        decay_steps=config.num_steps,
        end_value=config.final_fraction * config.learning_rate,
    )


def make_optimizer(config: OptimizerConfig) -> optax.GradientTransformation:
    if config.weight_decay is None:
        raise InputError("optimizer.weight_decay", None, "a number; a Config fills in Table 3's")
    return optax.chain(
        optax.clip_by_global_norm(config.clip_norm),
        optax.adamw(
            learning_rate(config),
            weight_decay=config.weight_decay,
            mask=_matrices if config.decay == "matrices" else None,
        ),
    )


def _matrices(parameters: optax.Params) -> optax.Params:
    """A mask of the parameters that weight decay shrinks: matrices, but not biases, norms or position bias tables."""
    return jax.tree.map_with_path(
        lambda path, leaf: leaf.ndim >= 2 and getattr(path[-1], "name", None) != "table", parameters
    )
