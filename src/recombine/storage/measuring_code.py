"""The code that each kind of stored measurement depends on, and the digest of that code."""

from recombine.code_digest import model_digest, package_digest
from recombine.config.schema import Config, custom_model, custom_task

REFERENCES = ("recombine.measure.reference.score",)
SCORECARD = ("recombine.measure.scorecard", "recombine.model.build")
SELECTION = ("recombine.measure.predict", "recombine.measure.r2", "recombine.task.evaluation", "recombine.model.build")


def code_of(config: Config, modules: tuple[str, ...]) -> str:
    """The digest of modules of the package, and of the run's custom model and custom task if it has them."""
    custom = custom_model(config)
    found = package_digest(*modules) if custom is None else f"{package_digest(*modules)}+{model_digest(custom)}"
    return _with_task(config, found)


def references_code(config: Config) -> str:
    """The digest of the code that the references depend on: the custom task's too, but not the model's."""
    return _with_task(config, package_digest(*REFERENCES))


def _with_task(config: Config, digest: str) -> str:
    custom = custom_task(config)
    return digest if custom is None else f"{digest}+{model_digest(custom)}"
