"""The runs that reproduce each panel of the paper's figures."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from recombine import paper
from recombine.config.model import (
    BASELINES,
    EXPLICIT_STEPS,
    MODEL_CONFIGS,
    CustomModelConfig,
    HypertransformerConfig,
    ModelConfig,
)
from recombine.config.preset import Preset, preset_config
from recombine.config.schema import Config
from recombine.config.toml import override
from recombine.errors import InputError

BOTTLENECK = BASELINES["bottleneck"]
CUSTOM = "custom"  # the name of the table with changes to the custom model
# Fields that were added when runs of the bottleneck existed.
LATER = ("position_buckets", "dropout", "scaled_forward", "literal_input", "inference_steps")


def safe_name(name: str) -> str:
    """The name of a model or a support, made safe for a file name. A user's support may be called anything."""
    return re.sub(r"[^\w+.-]", "_", name)[:60].lstrip(".")


@dataclass(frozen=True)
class CatalogRun:
    """One run, and the panels that need it."""

    config: Config
    panels: str

    @property
    def name(self) -> str:
        """The name of the run's directory."""
        model, support = (safe_name(name) for name in (self.config.model.label, self.config.task.support.name))
        return f"{model}-{support}-seed{self.config.seed}"


def paper_runs(
    preset: Preset, changes: Mapping[str, Any], seeds: Sequence[int], custom: Sequence[CustomModelConfig] = ()
) -> list[CatalogRun]:
    """The runs of a reproduction, the most important first.

    First both models on the main support (panels A, B, C and the appendix), for every seed. Then both models on the
    connected and the disconnected support (panel D). Then the hypertransformer that is trained with explicit inference,
    on the same supports. Then two ablations: the transformer that is given the latent, and the bottleneck without a
    hypernetwork. Custom models are trained wherever the paper's two are.
    """
    if CUSTOM in changes and not custom:
        raise InputError(CUSTOM, changes[CUSTOM], "has changes to a custom model, but no --model names one")
    configs = {kind: _config(preset, kind, changes) for kind in MODEL_CONFIGS}
    models = [*configs.values(), *(_custom_config(preset, one, changes) for one in custom)]
    support = configs["transformer"].task.support
    entries = [CatalogRun(model, "A B C appendix") for model in models]
    if support.name == paper.DEFAULT_SUPPORT:  # on any other support there is no panel D
        for name in ("connected", "disconnected"):
            entries += [CatalogRun(override(model, {"task": {"support": name}}), "D") for model in models]
    hyper = configs["hypertransformer"]
    if hyper.model.label == "hypertransformer":  # otherwise a change has made it another model
        explicit = override(hyper, {"model": {"inference_steps": EXPLICIT_STEPS}})
        for one in dict.fromkeys(entry.config.task.support for entry in entries):
            entries.append(CatalogRun(replace(explicit, task=replace(explicit.task, support=one)), "explicit"))
    if support.num_modules <= hyper.task.input_dim:
        entries.append(CatalogRun(override(configs["transformer"], {"model": {"given_latent": True}}), "interventions"))
    if BOTTLENECK not in [one.kind for one in custom]:
        entries.append(CatalogRun(replace(hyper, model=_bottleneck(hyper.model)), "bottleneck"))
    names = [entry.name for entry in entries]
    if twice := [entry.config.model for entry in entries if names.count(entry.name) > 1]:
        raise InputError("model", twice[0].kind, f"another model is also called {twice[0].label}; rename the class")
    ranks = list(dict.fromkeys(entry.panels for entry in entries))
    return [
        replace(entry, config=replace(entry.config, seed=seed))
        for panels in ranks
        for seed in seeds
        for entry in entries
        if entry.panels == panels
    ]


def _config(preset: Preset, kind: str, changes: Mapping[str, Any]) -> Config:
    """The preset with the changes to all models, then with the changes to this model alone."""
    shared = {name: value for name, value in changes.items() if name not in (*MODEL_CONFIGS, CUSTOM)}
    _refuse_kind("model.kind", shared)
    return _override_alone(override(preset_config(preset, kind), shared), kind, changes)


def _override_alone(config: Config, name: str, changes: Mapping[str, Any]) -> Config:
    """The configuration with the changes to one model alone."""
    alone = _changes_alone(name, changes)
    try:
        return override(config, alone)
    except InputError as error:  # name the field as the user wrote it
        raise InputError(f"{name}.{error.field}", error.value, error.expected) from error


def _changes_alone(name: str, changes: Mapping[str, Any]) -> Mapping[str, Any]:
    alone = changes.get(name, {})
    if not isinstance(alone, Mapping):
        raise InputError(name, alone, f"a table of changes to one model alone, such as [{name}.model]")
    if only := sorted(alone.keys() - {"model", "optimizer"}):
        raise InputError(f"{name}.{only[0]}", alone[only[0]], "models share it; only model and optimizer may differ")
    _refuse_kind(f"{name}.model.kind", alone)
    return alone


def _custom_config(preset: Preset, custom: CustomModelConfig, changes: Mapping[str, Any]) -> Config:
    shared = {name: value for name, value in changes.items() if name not in (*MODEL_CONFIGS, CUSTOM, "model")}
    config = _override_alone(override(preset_config(preset, custom.kind), shared), CUSTOM, changes)
    if custom.kind == BOTTLENECK and not dict(getattr(config.model, "options", ())):
        hyper = _config(preset, "hypertransformer", changes)
        return replace(hyper, model=_bottleneck(hyper.model))
    return config


def _bottleneck(hyper: ModelConfig) -> CustomModelConfig:
    """The bottleneck with the hypertransformer's options.

    Options that came later are left out at their defaults, so that older runs are recognised. `literal_input` always
    is: the bottleneck is not shown the query's label.
    """
    later = {f.name: f.default for f in fields(HypertransformerConfig) if f.name in LATER}
    options = {name: value for name, value in asdict(hyper).items() if value != later.get(name, ...)}
    options.pop("literal_input", None)
    return CustomModelConfig(BOTTLENECK, tuple(options.items()))


def _refuse_kind(field: str, changes: Mapping[str, Any]) -> None:
    if isinstance(model := changes.get("model"), Mapping) and "kind" in model:
        raise InputError(field, model["kind"], "this command determines which models are trained; leave it out")
