"""Our contenders: the training steps of `recombine train`."""

import jax.numpy as jnp
import numpy as np

from recombine.bench.setting import MissingRequirement, OurSetting, Stepper
from recombine.errors import InputError
from recombine.run.machine import prepare
from recombine.train.loop import NonFiniteLoss, check_devices, run_steps
from recombine.train.step import compiled_part, config_tasks, init_state

__all__ = ["REQUIRES", "make_stepper"]

REQUIRES: tuple[str, ...] = ("equinox", "jax", "jaxlib", "optax")


def make_stepper(setting: OurSetting) -> Stepper:
    """Training from the initial state. Each call resumes where the last one stopped."""
    prepare(setting.threads if setting.devices == 1 else 1, setting.devices)
    config = setting.config
    try:
        check_devices(config, setting.devices)
    except InputError as error:
        raise MissingRequirement(str(error)) from error
    static, seed, tasks = compiled_part(config), jnp.asarray(config.seed, jnp.uint32), config_tasks(config)
    state, step = init_state(config), 0

    def run(num_steps: int) -> float:
        nonlocal state, step
        steps = run_steps(static, seed, tasks, state, jnp.asarray(step), jnp.asarray(num_steps), setting.devices)
        state, step = steps.state, step + num_steps
        if not steps.finite:
            raise NonFiniteLoss(f"the loss or its gradient at step {step} is not finite")
        return float(np.asarray(steps.losses)[num_steps - 1])

    return run
