"""The catalog: which runs make which panel of the paper's figures."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from recombine import paper
from recombine.config import MODEL_CONFIGS, SHIPPED, Config, OwnModelConfig
from recombine.config_file import override
from recombine.errors import InputError
from recombine.preset import Preset, preset_config

(BOTTLENECK,) = SHIPPED
OWN = "own"  # the table of changes to the user's own model


def safe_name(name: str) -> str:
    """A support's name as a part of a file name: it is the user's, and may be anything."""
    return re.sub(r"[^\w+.-]", "_", name)[:60].lstrip(".")


@dataclass(frozen=True)
class Entry:
    """One run, and the panels it is for."""

    config: Config
    panels: str

    @property
    def name(self) -> str:
        """The name of the run's directory."""
        return f"{self.config.model.label}-{safe_name(self.config.task.support.name)}-seed{self.config.seed}"


def catalog(
    preset: Preset, changes: Mapping[str, Any], seeds: Sequence[int], own: OwnModelConfig | None = None
) -> list[Entry]:
    """The runs of a reproduction, in the order in which they are worth most.

    First both models on the main support (panels A, B, C and the appendix), for every seed; then on the connected and
    the disconnected one (panel D); then what answers the question behind them: the transformer that is given the
    latent, and the bottleneck without a hypernetwork. A model of one's own goes with the paper's two.
    """
    if OWN in changes and own is None:
        raise InputError(OWN, changes[OWN], "changes to a model of your own, and no --model names one")
    configs = {kind: _config(preset, kind, changes) for kind in MODEL_CONFIGS}
    models = [*configs.values(), *([_own_config(preset, own, changes)] if own else [])]
    support = configs["transformer"].task.support
    entries = [Entry(model, "A B C appendix") for model in models]
    if support.name == paper.DEFAULT_SUPPORT:  # on a support of one's own there is no panel D
        for name in ("connected", "disconnected"):
            entries += [Entry(override(model, {"task": {"support": name}}), "D") for model in models]
    hyper = configs["hypertransformer"]
    if support.num_modules <= hyper.task.input_dim:
        entries.append(Entry(override(configs["transformer"], {"model": {"given_latent": True}}), "interventions"))
    if own is None or own.kind != BOTTLENECK:
        options = tuple(asdict(hyper.model).items())
        entries.append(Entry(replace(hyper, model=OwnModelConfig(BOTTLENECK, options)), "bottleneck"))
    if own and len({entry.name for entry in entries}) < len(entries):
        raise InputError("model", own.kind, f"{own.label} is the name of a model of ours; rename the class")
    ranks = list(dict.fromkeys(entry.panels for entry in entries))
    return [
        replace(entry, config=replace(entry.config, seed=seed))
        for panels in ranks
        for seed in seeds
        for entry in entries
        if entry.panels == panels
    ]


def _config(preset: Preset, kind: str, changes: Mapping[str, Any]) -> Config:
    """The preset, then the changes to all models, then those under a model's own name."""
    shared = {name: value for name, value in changes.items() if name not in (*MODEL_CONFIGS, OWN)}
    _refuse_kind("model.kind", shared)
    return _override_own(override(preset_config(preset, kind), shared), kind, changes)


def _override_own(config: Config, name: str, changes: Mapping[str, Any]) -> Config:
    """With the changes to one model alone."""
    own = _own_changes(name, changes)
    try:
        return override(config, own)
    except InputError as error:  # named as the user wrote it
        raise InputError(f"{name}.{error.field}", error.value, error.expected) from error


def _own_changes(name: str, changes: Mapping[str, Any]) -> Mapping[str, Any]:
    own = changes.get(name, {})
    if not isinstance(own, Mapping):
        raise InputError(name, own, f"a table of changes to one model alone, such as [{name}.model]")
    if only := sorted(own.keys() - {"model", "optimizer"}):
        raise InputError(f"{name}.{only[0]}", own[only[0]], "the models share it; only model and optimizer differ")
    _refuse_kind(f"{name}.model.kind", own)
    return own


def _own_config(preset: Preset, own: OwnModelConfig, changes: Mapping[str, Any]) -> Config:
    shared = {name: value for name, value in changes.items() if name not in (*MODEL_CONFIGS, OWN, "model")}
    config = _override_own(override(preset_config(preset, own.kind), shared), OWN, changes)
    if own.kind == BOTTLENECK and not dict(getattr(config.model, "options", ())):
        hyper = _config(preset, "hypertransformer", changes)
        return replace(hyper, model=OwnModelConfig(BOTTLENECK, tuple(asdict(hyper.model).items())))
    return config


def _refuse_kind(field: str, changes: Mapping[str, Any]) -> None:
    if isinstance(model := changes.get("model"), Mapping) and "kind" in model:
        raise InputError(field, model["kind"], "the catalog says which models are trained; leave it out")
