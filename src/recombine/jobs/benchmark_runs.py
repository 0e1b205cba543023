"""The runs of the benchmark for one model, and the result file that is made of them."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.config.toml import Tables, config_tables, override
from recombine.errors import Failed, InputError
from recombine.exam.array_archive import save_arrays
from recombine.exam.benchmark import Size, episodes_of, frozen, setting_config, settings
from recombine.exam.result import Result, RunResult, result_arrays, rounded, score_run
from recombine.files import read_file
from recombine.measure.predict import forward_episodes
from recombine.model.build import count_parameters
from recombine.record.codec import BadRecord, decode
from recombine.record.run_state import TimingRow
from recombine.run.load import load_model
from recombine.storage.reader import read_run
from recombine.storage.source import DirectorySource

OWN = ("num_steps", "batch_size")  # of the optimiser: the benchmark's, not the user's
LARGEST_TIMING = 1 << 26


def benchmark_config(kind: str, changes: Tables) -> Config:
    """The model of a result, with the user's changes to it and to its optimiser."""
    config = preset_config("quick", kind)
    for group, fields in changes.items():
        if group not in ("model", "optimizer"):
            raise InputError("set", group, "the benchmark is frozen; only model.… and optimizer.… may be changed")
        if group == "model" and isinstance(fields, dict) and "kind" in fields:
            raise InputError("set", "model.kind", "name the model with --model")
        for name in OWN:
            if group == "optimizer" and isinstance(fields, dict) and name in fields:
                raise InputError(f"optimizer.{name}", fields[name], "is frozen in the benchmark; leave it out")
    config = override(config, changes)
    if getattr(config.model, "given_latent", False) or dict(getattr(config.model, "options", {})).get("given_latent"):
        raise InputError("model.given_latent", True, "false: a model of the benchmark is not shown the latent")
    if getattr(config.model, "literal_input", False):
        raise InputError("model.literal_input", True, "false: a model of the benchmark does not see the query's label")
    return config


def benchmark_runs(config: Config, size: Size) -> dict[str, Config]:
    """The runs by name, in the order in which they are trained."""
    return {setting.name: setting_config(config, setting, size) for setting in settings(size)}


def write_result(out: Path, config: Config, size: Size, path: Path, say: Callable[[str], None]) -> Result:
    """Predict the benchmark's episodes with the model of every run, and write the result file."""
    runs, predictions, parameters, machine = [], {}, 0, ""
    for setting in settings(size):
        run = out / setting.name
        say(f"predicting {setting.name}")
        trained, file = load_model(run, say=say), episodes_of(setting, size)
        expected = setting_config(config, setting, size)
        if trained.config != expected or trained.step != expected.optimizer.num_steps:
            raise Failed(f"{setting.name}: its newest good checkpoint is not that of the finished run; train it again")
        found = [forward_episodes(trained.config, trained.model, part.episodes).y for part in file.drawn.values()]
        prediction = np.concatenate([np.asarray(one) for one in found])
        if not np.isfinite(prediction).all():
            raise ArithmeticError(f"{setting.name}: some predictions are not finite: the model has diverged")
        predictions[setting.name] = rounded(prediction)
        stored = read_run(DirectorySource(run))
        vmapped = stored.made.together if stored.made else 1  # each run has the time of all in the program
        runs.append(
            RunResult(
                task=setting.task,
                support=setting.support,
                seed=setting.seed,
                episodes=frozen(setting, size).digest,
                r2=score_run(predictions[setting.name], file),
                core_hours=round(_core_hours(run, stored.made.threads if stored.made else 1) / vmapped, 4),
            )
        )
        parameters, machine = count_parameters(trained.model), stored.made.device if stored.made else ""
    tables = config_tables(config)
    result = Result(
        size=size,
        model=config.model.label,
        config={name: tables[name] for name in ("model", "optimizer")},
        parameters=parameters,
        machine=machine,
        runs=tuple(runs),
    )
    save_arrays(path, result_arrays(result, predictions))
    return result


def _core_hours(run: Path, threads: int) -> float:
    """The processor time of the run, measuring included. Where it is not known: its time, times its threads."""
    lines = read_file(run / "timing.jsonl", LARGEST_TIMING).decode(errors="replace").splitlines()
    rows = []
    for line in lines:
        with suppress(BadRecord):  # nothing but this number depends on the file
            rows.append(decode(line, TimingRow))
    spent = (
        threads * sum(row.seconds.values()) if row.processor_seconds is None else row.processor_seconds for row in rows
    )
    return sum(spent) / 3600
