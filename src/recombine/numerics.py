"""What JAX is told first: float32 means float32, and a key the same random bits everywhere.

On accelerators a product of float32 matrices is by default not one: labels would be noisy, and the fast path another
model than the plain one. And how a key becomes bits is a setting of JAX that an environment variable can change:
another teacher and other data, by the same seed.

Importing this sets both, for the whole process; every room that multiplies or draws does. Passes in bfloat16 are the
exception, on demand (`model/batch.py`).
"""

import jax

jax.config.update("jax_default_matmul_precision", "highest")
jax.config.update("jax_threefry_partitionable", True)
