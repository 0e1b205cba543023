"""The code that each kind of stored measurement depends on, and the digest of that code."""

from recombine.code_digest import model_digest, package_digest
from recombine.config.schema import Config, custom_model

REFERENCES = ("recombine.measure.reference.score",)
SCORECARD = ("recombine.measure.scorecard", "recombine.model.build")
SELECTION = ("recombine.measure.predict", "recombine.measure.r2", "recombine.task.evaluation", "recombine.model.build")


def code_of(config: Config, modules: tuple[str, ...]) -> str:
    """The digest of modules of the package, and of the run's custom model if it has one."""
    custom = custom_model(config)
    return package_digest(*modules) if custom is None else f"{package_digest(*modules)}+{model_digest(custom)}"
