"""Exports runs in a form to share: measurements and parameters, in a directory or an archive."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from safetensors.numpy import save

from recombine.errors import InputError
from recombine.files import NotAFile, make_directories, replace_file
from recombine.model.weights import named_arrays
from recombine.record.codec import BadRecord, decode, encode
from recombine.record.run_state import Environment, Start
from recombine.run.load import load_model
from recombine.storage.archive import SUFFIX, write_archive
from recombine.storage.reader import last_row, read_config
from recombine.storage.reference_files import reference_file
from recombine.storage.source import (
    CONFIG,
    ENV,
    METRICS,
    REFERENCES,
    SCORECARD,
    SELECTION,
    STATUS,
    WEIGHTS,
    RunSource,
)

KEPT = (CONFIG, METRICS, STATUS, SCORECARD, SELECTION)
LARGEST_REFERENCES = 1 << 20


def check_export(runs: Iterable[RunSource], out: Path, weights: bool = False) -> None:
    """Refuse, before anything is written, what cannot be exported."""
    names: set[str] = set()
    for run in runs:
        read_config(run)
        _public_environment(run)
        if run.name in names:
            raise InputError("runs", str(run.path), "another has the same name; export them to different directories")
        names.add(run.name)
        if (out / run.name).resolve() == run.path.resolve():
            raise InputError("out", str(out), "the run is there already")
        if not weights:
            continue
        step, row = load_model(run.path).step, last_row(run)
        if row is None or step != row.step:
            measured = None if row is None else row.step
            what = f"its newest checkpoint is of step {step}, and it was last measured at step {measured}"
            advice = "scores and parameters would be of different models; train on, or export without --weights"
            raise InputError("run", str(run.path), f"{what}: {advice}")


def export_runs(runs: Sequence[RunSource], out: Path, weights: bool = False, lists: Sequence[Path] = ()) -> list[Path]:
    """The runs, each under its name, their references beside them, and the lists of sweeps; where each went."""
    members: dict[str, bytes] = {path.name: path.read_bytes() for path in lists}
    for run in runs:
        members |= _members(run, weights)
    if out.suffix == SUFFIX:
        write_archive(out, members)
        return [out / run.name for run in runs]
    for name, data in members.items():
        make_directories((out / name).parent)
        replace_file(out / name, data)
    return [out / run.name for run in runs]


def _members(run: RunSource, weights: bool) -> dict[str, bytes]:
    """The files of one run that are kept, by their names in the export."""
    kept = {name: run.read(name) for name in KEPT if run.has(name)}
    if (env := _public_environment(run)) is not None:
        kept[ENV] = f"{encode(env, indent=1)}\n".encode()
    if weights:
        kept[WEIGHTS] = save(named_arrays(load_model(run.path).model))
    members = {f"{run.name}/{name}": data for name, data in kept.items()}
    references = reference_file(read_config(run))
    with suppress(NotAFile):  # not computed yet
        members[f"{REFERENCES}/{references}"] = run.read_beside(REFERENCES, references, LARGEST_REFERENCES)
    return members


def _public_environment(run: RunSource) -> Environment | None:
    """What a run was made with, without what concerns nobody else: the machine's name, the command."""
    if not run.has(ENV):
        return None
    try:
        env = decode(run.read(ENV), Environment)
    except (NotAFile, BadRecord) as error:
        raise InputError("run", str(run.path), f"its {ENV} cannot be read ({error})") from error
    starts = tuple(Start(step=start.step, identity=start.identity, python=start.python) for start in env.starts)
    return Environment(starts, env.changes)
