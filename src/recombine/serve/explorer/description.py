"""Describes a trained model before a task is composed for it, from its configuration alone: without JAX."""

from recombine.config.model import CustomModelConfig
from recombine.config.schema import Config
from recombine.config.task import TaskConfig
from recombine.errors import InputError
from recombine.serve.explorer.exchange import Masks, ModelDescription
from recombine.story.pack import check_computable
from recombine.support.masks import format_mask

MOST_COST = 20_000_000  # multiplications for one prediction; a page needs about a nanosecond for each
MOST_PARAMETERS = 2_000_000  # fetched whole, and the paper's transformer has a fifth of it


def context_lengths(trained_on: int) -> list[int]:
    """The numbers of context examples that can be chosen: some below the number trained on, and some above it."""
    few = [1, 2, 3, 4, 6, 8, 11, 15, 19, 23, 27, 31, 47, 63, 95, 127]
    return sorted({n for n in few if n <= 2 * trained_on} | {trained_on - 1})


def describe_model(config: Config, step: int, latent_dim: int | None) -> ModelDescription:
    support = config.task.support
    return ModelDescription(
        model=config.model.label,
        step=step,
        teacher=config.seed if config.teacher_seed is None else config.teacher_seed,
        support=support.name,
        modules=support.num_modules,
        masks=Masks(tuple(map(format_mask, support.masks)), tuple(map(format_mask, support.held_out))),
        input_dim=config.task.input_dim,
        trained_length=config.task.episode_length - 1,
        lengths=tuple(context_lengths(config.task.episode_length)),
        latent_dim=latent_dim,
        in_page=is_in_page(config),
    )


def why_not_explored(task: TaskConfig, model: object) -> str | None:
    """Why the explorer cannot show a model of this task, or None. `model` may be its configuration.

    A configuration has the same fields as its model, except for a custom model, which is asked once it is loaded.
    """
    if getattr(model, "given_latent", False):
        return "its model is given the true latent, so there is nothing to infer"
    if getattr(model, "literal_input", False):
        return "its model is shown the query's label, so there is nothing to predict"
    if task.label_shape:
        return f"its labels are vectors (task.output_dim = {task.output_dim}); the explorer draws only single numbers"
    return None


def is_in_page(config: Config) -> bool:
    """Whether the page runs the model itself. It must be one that a story could show, and small enough."""
    try:
        check_computable(config)
    except InputError:
        return False
    model = config.model
    assert not isinstance(model, CustomModelConfig)
    task, block = config.task, model.embed_dim**2 * (4 + 2 * model.ffn_factor)
    modules = getattr(model, "latent_dim", 0) * getattr(model, "hidden_dim", 0) * task.input_dim
    parameters = block * model.num_layers + modules
    # All tokens pass through all blocks but the last; the modules are applied to each.
    return (
        task.episode_length * (block * (model.num_layers - 1) + modules) <= MOST_COST and parameters <= MOST_PARAMETERS
    )
