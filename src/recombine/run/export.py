"""Exports runs for sharing: their measurements and, on request, their parameters, in a directory or an archive.

Parameters come with a model card.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from safetensors.numpy import save

from recombine.config.toml import write_toml
from recombine.errors import InputError
from recombine.files import NotAFile, check_name, make_directories, read_file, replace_file
from recombine.model.build import count_parameters
from recombine.model.weights import named_arrays
from recombine.record.codec import BadRecord, decode, encode
from recombine.record.run_state import Environment, Start
from recombine.run.load import TrainedModel, load_recorded
from recombine.storage.archive import SUFFIX, open_archive, split_path, write_archive
from recombine.storage.integrity import MANIFEST, Recorded, export_manifest, recorded
from recombine.storage.reader import (
    LARGEST_SCORECARD,
    LARGEST_SMALL,
    StoredRun,
    last_row_of,
    parse_rows,
    read_config,
    read_run,
    read_selection,
)
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

KEPT = {STATUS: LARGEST_SMALL, SCORECARD: LARGEST_SCORECARD, SELECTION: LARGEST_SMALL}
"""The files that are exported besides configuration and metrics, and the largest allowed size of each."""
LARGEST_REFERENCES, LARGEST_LIST = 1 << 20, 1 << 28


def check_export(runs: Iterable[RunSource], out: Path, weights: bool = False, lists: Sequence[Path] = ()) -> None:
    """Refuse runs that cannot be exported, before anything is written."""
    _check_lists(lists, out)
    names: set[str] = set()
    for run in runs:
        check_name("runs", Path(run.name))
        read_run(run)  # raises an error if it is damaged
        read_selection(run)
        _kept_files(run)
        _public_environment(run)
        if run.name in names:
            raise InputError("runs", str(run.path), "another has the same name; export them to different directories")
        names.add(run.name)
        if (out / run.name).resolve() == run.path.resolve():
            raise InputError("out", str(out), "already has this run; name another directory")
        if weights:
            _parameters(run)


def _parameters(run: RunSource) -> tuple[TrainedModel, Recorded]:
    """The model, with its own configuration and metrics. Refuses parameters without scores at their step."""
    trained, found = load_recorded(run.path)
    row = last_row_of(found.metrics)
    if row is None or trained.step != row.step:
        measured = None if row is None else row.step
        what = f"its newest checkpoint is at step {trained.step}, but it was last measured at step {measured}"
        advice = "scores and parameters would not match; train further, or export without --weights"
        raise InputError("run", str(run.path), f"{what}: {advice}")
    return trained, found


def _check_lists(lists: Sequence[Path], out: Path) -> None:
    """Refuse to mix the lists of two sweeps. A list that was exported before may have grown since."""
    if len(lists) > 1:
        shown = ", ".join(map(str, lists))
        raise InputError("runs", shown, f"each has a {lists[0].name}; export them to different directories")
    for path in lists:
        there = out / path.name
        if not there.is_file():
            continue
        if not set(read_file(there, LARGEST_LIST).splitlines()) <= set(_read_list(path).splitlines()):
            raise InputError("out", str(out), f"the {path.name} of another sweep is there; name another directory")


def _read_list(path: Path) -> bytes:
    inside = split_path(path)
    return read_file(path, LARGEST_LIST) if inside is None else open_archive(inside[0]).read(inside[1], LARGEST_LIST)


def export_runs(runs: Sequence[RunSource], out: Path, weights: bool = False, lists: Sequence[Path] = ()) -> list[Path]:
    """Write the runs, each under its name, with their references and sweep lists. Returns the new path of each run."""
    members: dict[str, bytes] = {path.name: _read_list(path) for path in lists}
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
    """The exported files of one run, by their names in the export."""
    kept = _kept_files(run)
    if (env := _public_environment(run)) is not None:
        kept[ENV] = f"{encode(env, indent=1)}\n".encode()
    if weights:
        trained, found = _parameters(run)
        kept |= {CONFIG: found.config.encode(), METRICS: found.metrics.encode()}
        kept[WEIGHTS] = save(named_arrays(trained.model))
        rows = parse_rows(run, found.metrics)
        shown = replace(read_run(run, scorecard=False), config=trained.config, rows=rows)
        kept[CARD] = model_card(shown, count_parameters(trained.model)).encode()
    kept[MANIFEST] = export_manifest(kept)
    members = {f"{run.name}/{name}": data for name, data in kept.items()}
    references = reference_file(read_config(run))
    with suppress(NotAFile):  # not computed yet
        members[f"{REFERENCES}/{references}"] = run.read_beside(REFERENCES, references, LARGEST_REFERENCES)
    return members


def _kept_files(run: RunSource) -> dict[str, bytes]:
    found = recorded(run)
    files = {CONFIG: found.config.encode(), METRICS: found.metrics.encode()}
    try:
        return files | {name: run.read(name, most) for name, most in KEPT.items() if run.has(name)}
    except NotAFile as error:
        raise InputError("run", str(run.path), f"cannot be copied: {error}") from error


def _public_environment(run: RunSource) -> Environment | None:
    """The record of a run's starts without private details: the name of the machine, the command."""
    if not run.has(ENV):
        return None
    try:
        env = decode(run.read(ENV, LARGEST_SMALL), Environment)
    except (NotAFile, BadRecord) as error:
        raise InputError("run", str(run.path), f"its {ENV} cannot be read ({error})") from error
    starts = tuple(
        Start(step=start.step, identity=start.identity, python=start.python, commit=start.commit)
        for start in env.starts
    )
    return Environment(starts, env.changes)


CARD = "MODEL_CARD.md"
SPLIT_WORDS = {
    "in_dist": "new tasks on masks that it trained on",
    "ood": "masks that were held out",
    "control": "tasks of other teachers",
    "control_modules": "tasks of other modules, the same readout",
}


def model_card(run: StoredRun, num_parameters: int) -> str:
    """A page of Markdown about a run's model. Every number in it was measured, or is in the configuration."""
    task, last = run.config.task, run.last
    scores = {} if last is None else last.splits()
    rows = [f"| {split} | {SPLIT_WORDS[split]} | {score.r2:.3f} |" for split, score in scores.items()]
    labels = f" labels of {task.output_dim} numbers," if task.label_shape else ""
    lines = [
        f"# {run.model}, trained on {run.support}, seed {run.seed}",
        "",
        f"A model of {num_parameters:,} parameters that solves regression tasks in context, trained by Recombine for "
        f"{0 if last is None else last.step:,} of {run.num_steps:,} steps. An episode has "
        f"{task.episode_length - 1} pairs and a query, inputs of {task.input_dim} numbers,{labels} and a task composed "
        f"of {task.num_modules} modules.",
        "",
        "| split | tasks | R² |",
        "|---|---|---|",
        *rows,
        "",
        "R² is 1 for a perfect prediction and 0 for the mean of the context. The model knows only the synthetic tasks "
        "of one teacher, which the seed determines. It is useful only for studying how such models generalise.",
        "",
        "```python",
        "import recombine as rc",
        "",
        f'run = rc.load("{run.path.name}")  # this directory, or ARCHIVE.zip/{run.path.name}',
        'print(rc.predict(run, rc.sample(run, "in_dist", 100)))',
        "```",
        "",
        "The complete configuration:",
        "",
        "```toml",
        write_toml(run.config).rstrip(),
        "```",
        "",
    ]
    return "\n".join(lines)
