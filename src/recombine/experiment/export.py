"""Runs in a form to keep and to share: what they measured, and their parameters."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safetensors.numpy import save

from recombine.errors import InputError
from recombine.experiment.reference import REFERENCES_DIRECTORY, reference_path
from recombine.experiment.rundir import CONFIG, ENV, METRICS, STATUS, WEIGHTS, last_row, run_config
from recombine.experiment.scorecard import SCORECARD
from recombine.experiment.sweep import LIST, SELECTION
from recombine.experiment.trained import load_trained
from recombine.files import NotAFile, make_directories, read_file, replace_file
from recombine.model.weights import named_arrays

KEPT = (CONFIG, METRICS, STATUS, SCORECARD, SELECTION)


def runs_in(path: Path) -> list[Path]:
    """The run itself, or those that a reproduction's or a sweep's directory has in it."""
    if (path / CONFIG).is_file() or not path.is_dir():
        return [path]
    runs = sorted(child for child in path.iterdir() if (child / CONFIG).is_file() and not child.is_symlink())
    if not runs:
        raise InputError("runs", str(path), f"no run in it (a run directory has a {CONFIG})")
    return runs


def check_export(runs: Iterable[Path], out: Path, weights: bool = False) -> None:
    """Refuse, before anything is written, what cannot be exported."""
    names: set[str] = set()
    for run in runs:
        run_config(run)
        if run.resolve().name in names:
            raise InputError("runs", str(run), "another has the same name; export them to different directories")
        names.add(run.resolve().name)
        if (out / run.resolve().name).resolve() == run.resolve():
            raise InputError("out", str(out), "the run is there already")
        _kept_environment(run)
        if weights and (step := load_trained(run).step) != (measured := last_row(run).get("step")):
            what = f"its newest checkpoint is of step {step}, and it was last measured at {measured}: the parameters"
            raise InputError("run", str(run), f"{what} would go by others' scores; train on, or export without them")


def export_run(run: Path, out: Path, weights: bool) -> Path:
    """The run's directory in `out`; with its references beside it, where there are some."""
    target = out / run.resolve().name
    make_directories(target)
    for name in KEPT:
        if (run / name).exists():
            replace_file(target / name, read_file(run / name))
    if env := _kept_environment(run):
        replace_file(target / ENV, (json.dumps(env, indent=1) + "\n").encode())
    if weights:
        replace_file(target / WEIGHTS, save(named_arrays(load_trained(run).model)))
    references = reference_path(run.parent / REFERENCES_DIRECTORY, run_config(run))
    if references.is_file():
        make_directories(out / REFERENCES_DIRECTORY)
        replace_file(out / REFERENCES_DIRECTORY / references.name, read_file(references))
    return target


def _kept_environment(run: Path) -> dict[str, Any] | None:
    """What a run was made with, without what is nobody else's: the machine's name, the command."""
    if not (run / ENV).exists():
        return None
    try:
        env = json.loads(read_file(run / ENV))
        kept = [{name: start[name] for name in ("step", "identity", "python")} for start in env.get("starts", [])]
    except (NotAFile, ValueError, RecursionError, AttributeError, LookupError, TypeError) as error:
        raise InputError("run", str(run), f"its {ENV} cannot be read ({error!r})") from error
    return env | {"starts": kept}


def export_list(directory: Path, out: Path) -> None:
    """What a sweep is made of, so that its results can be had from the exported runs."""
    if (directory / LIST).is_file():
        replace_file(out / LIST, read_file(directory / LIST))
