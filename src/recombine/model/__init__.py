"""The models. Each maps a single episode to a prediction; `jax.vmap` makes batches."""
