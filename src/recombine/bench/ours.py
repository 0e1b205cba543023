"""Our own contenders: the steps of `recombine train`, on the path and the devices of the job."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from recombine.bench.peer.job import Missing, Stepper
from recombine.config.schema import Config
from recombine.config.toml import override
from recombine.errors import InputError
from recombine.run.machine import prepare
from recombine.train.loop import NonFiniteLoss, check_devices, run_steps
from recombine.train.step import compiled_part, config_tasks, init_state

__all__ = ["REQUIRES", "Job", "make_stepper"]

REQUIRES: tuple[str, ...] = ("equinox", "jax", "jaxlib", "optax")


@dataclass(frozen=True)
class Job:
    """A whole configuration as nested tables, and what it may run on."""

    config: dict[str, Any]
    threads: int
    devices: int


def make_stepper(job: Job) -> Stepper:
    """Training from the initial state; each call goes on where the last one stopped."""
    prepare(job.threads if job.devices == 1 else 1, job.devices)
    config = override(Config(), job.config)
    try:
        check_devices(config, job.devices)
    except InputError as error:
        raise Missing(str(error)) from error
    static, seed, tasks = compiled_part(config), jnp.asarray(config.seed, jnp.uint32), config_tasks(config)
    state, step = init_state(config), 0

    def run(num_steps: int) -> float:
        nonlocal state, step
        steps = run_steps(static, seed, tasks, state, jnp.asarray(step), jnp.asarray(num_steps), job.devices)
        state, step = steps.state, step + num_steps
        if not steps.finite:
            raise NonFiniteLoss(f"the loss or its gradient at step {step} is not finite")
        return float(np.asarray(steps.losses)[num_steps - 1])

    return run
