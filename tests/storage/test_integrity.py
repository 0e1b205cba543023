"""Every shown number of a run is as measured; otherwise it is refused in one line, or measured again."""

import json
import re
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import pytest

from recombine.errors import InputError
from recombine.measure.scorecard import Scorecard
from recombine.model.custom import import_model
from recombine.record.codec import encode
from recombine.record.reference import StoredReferences
from recombine.record.seal import seal, unseal
from recombine.record.sweep import Selection, SelectionScores
from recombine.run.examine import agree, examine, in_dist_r2, scorecard_of
from recombine.run.export import check_export, export_runs
from recombine.run.load import load_model
from recombine.storage.integrity import recorded
from recombine.storage.reader import last_row, read_run, read_scorecard, read_selection
from recombine.storage.reference_files import reference_file, references_of, stored_references
from recombine.storage.source import open_run
from tests.reliability.small_run import finish, small_config


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "run"
    finish(path)
    scorecard_of(path, load_model(path))
    references_of(open_run(path), small_config())
    return path


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished.parent, tmp_path / "runs")
    return tmp_path / "runs" / "run"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


EDITS = {
    "a number": lambda text: text.replace('"r2": ', '"r2": 9', 1),
    "a bad byte in row 2": lambda text: text.replace("\n{", "\n{\0", 1),
    "swapped rows": lambda text: "".join(sorted(text.splitlines(keepends=True), reverse=True)),
    "a row less": lambda text: "".join(text.splitlines(keepends=True)[:-1]),
    "no row": lambda text: "",
    "a row more": lambda text: text + text.splitlines(keepends=True)[-1].replace('"step": 12', '"step": 13'),
}


@pytest.mark.parametrize("name", EDITS)
def test_metrics_that_were_edited_are_not_shown(run: Path, name: str, attacked: Callable) -> None:
    attacked("an edited result")
    before = read_run(open_run(run))
    metrics = run / "metrics.jsonl"
    metrics.write_text(EDITS[name](metrics.read_text()))
    after = read_run(open_run(run))
    assert after.rows == before.rows
    assert last_row(open_run(run)) == before.last
    told = [note for note in after.notes if "metrics.jsonl" in note]
    assert bool(told) == (name != "a row more")  # that one looks like a row whose checkpoint is still to come


def test_a_configuration_that_was_edited_is_not_shown(run: Path) -> None:
    edit(run / "config.toml", "seed = 0", "seed = 7")
    found = read_run(open_run(run))
    assert found.seed == 0
    assert any("config.toml" in note for note in found.notes)


def test_with_the_newest_checkpoint_damaged_the_one_before_counts(run: Path) -> None:
    newest, before = sorted((run / "checkpoints").glob("step-*"), reverse=True)
    (newest / "metrics.jsonl").write_bytes(b"{}\n")
    found = read_run(open_run(run))
    assert recorded(open_run(run)).metrics == (before / "metrics.jsonl").read_text()
    assert found.rows == read_run(open_run(run)).rows
    assert any(newest.name in note for note in found.notes)


def test_a_scorecard_that_was_edited_is_refused_and_measured_again(run: Path, attacked: Callable) -> None:
    attacked("an edited result")
    card = read_scorecard(open_run(run))
    assert card is not None
    edit(run / "scorecard.json", '"num_parameters": ', '"num_parameters": 1')
    with pytest.raises(InputError, match=r"scorecard\.json"):
        read_run(open_run(run))
    said: list[str] = []
    assert scorecard_of(run, load_model(run), said.append) == card.value
    assert len(said) == 1
    assert read_scorecard(open_run(run)) == card


def test_references_that_were_edited_are_refused_and_computed_again(run: Path, attacked: Callable) -> None:
    attacked("an edited result")
    config = small_config()
    path = run.parent / "references" / reference_file(config)
    stored = path.read_bytes()
    edit(path, '"r2": 0.', '"r2": 0.9')
    with pytest.raises(InputError, match=re.escape(path.name)):
        read_run(open_run(run))
    said: list[str] = []
    references_of(open_run(run), config, said.append)
    assert len(said) == 1
    assert path.read_bytes() == stored


def test_what_other_code_measured_is_measured_again(run: Path) -> None:
    config = small_config()
    path = run.parent / "references" / reference_file(config)
    stored = path.read_bytes()
    other = json.loads(stored)
    other["scores"]["oracle"]["ood"]["r2"] = 0.123
    path.write_bytes(
        seal(
            unseal(
                json.dumps({k: v for k, v in other.items() if k not in ("sources", "sha256")}).encode(),
                StoredReferences,
            ).value,
            "other",
        )
    )
    found = stored_references(open_run(run), config)
    assert found is not None
    assert found.sources == "other"
    assert any("references" in note for note in read_run(open_run(run)).notes)
    references_of(open_run(run), config)
    assert path.read_bytes() == stored

    card = read_scorecard(open_run(run))
    assert card is not None
    (run / "scorecard.json").write_bytes(seal(card.value, "other"))
    scorecard_of(run, load_model(run))
    assert read_scorecard(open_run(run)) == card


def test_what_was_stored_before_digests_were_kept_is_read(run: Path) -> None:
    card = read_scorecard(open_run(run))
    assert card is not None
    (run / "scorecard.json").write_text(encode(card.value))
    found = read_scorecard(open_run(run))
    assert found is not None
    assert found.sources == ""
    assert scorecard_of(run, load_model(run)) == card.value


@pytest.mark.parametrize("kind", ["directory", "archive"])
@pytest.mark.parametrize("name", ["config.toml", "metrics.jsonl", "scorecard.json", "model.safetensors", "references"])
def test_an_export_that_was_edited_is_refused(
    run: Path, tmp_path: Path, name: str, kind: str, attacked: Callable
) -> None:
    attacked("an edited result")
    out = tmp_path / "out"
    check_export([open_run(run)], out, weights=True)
    export_runs([open_run(run)], out, weights=True)
    assert read_run(open_run(out / "run")).rows == read_run(open_run(run)).rows
    path = out / "run" / name if name != "references" else out / "references" / reference_file(small_config())
    data = bytearray(path.read_bytes())
    place = data.rindex(b"0") if name != "model.safetensors" else len(data) - 1
    data[place] ^= 1
    path.write_bytes(bytes(data))
    place_of_run = out / "run"
    if kind == "archive":
        with zipfile.ZipFile(tmp_path / "out.zip", "w") as archive:
            for file in sorted(out.rglob("*")):
                if file.is_file():
                    archive.write(file, file.relative_to(out))
        place_of_run = tmp_path / "out.zip" / "run"
    with pytest.raises(InputError, match=re.escape(path.name)):
        read_run(open_run(place_of_run))
        load_model(place_of_run)


def test_a_selection_that_was_edited_is_refused(run: Path) -> None:
    (run / "selection.json").write_bytes(seal(Selection(1, 12, SelectionScores(), SelectionScores()), "code"))
    assert read_selection(open_run(run)) is not None
    edit(run / "selection.json", '"step": 12', '"step": 13')
    with pytest.raises(InputError, match=r"selection\.json"):
        read_selection(open_run(run))


def test_scores_are_measured_again_if_the_code_gives_others(run: Path) -> None:
    """Even if the digests agree: the parameters give another score than the stored one."""
    trained, stored = load_model(run), read_run(open_run(run))
    assert stored.last is not None
    assert agree(stored.last.in_dist.r2, in_dist_r2(trained))
    said: list[str] = []
    assert examine(stored, trained, said.append).row == stored.last
    said.clear()
    doubled = trained._replace(model=_doubled(trained.model))
    found = examine(stored, doubled, said.append)
    assert found.row.in_dist.r2 == pytest.approx(in_dist_r2(doubled), abs=1e-6)
    assert found.row.in_dist.r2 != stored.last.in_dist.r2
    assert any("in distribution" in text for text in said)
    card = read_scorecard(open_run(run))
    assert card is not None
    assert isinstance(card.value, Scorecard)
    assert found.scorecard.active_modules != card.value.active_modules


def _doubled(model):
    return jax.tree.map(lambda leaf: 2 * leaf if eqx.is_inexact_array(leaf) else leaf, model)


def test_a_run_that_nobody_touched_needs_no_note(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same holds for a custom model: the references do not depend on its code."""
    assert read_run(open_run(run)).notes == ()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "noteless_model.py").write_text(
        "import equinox as eqx\n"
        "from recombine.model.interface import Output, Trace\n\n\n"
        "class Noteless(eqx.Module):\n"
        "    weight: eqx.nn.Linear\n\n"
        "    def __init__(self, config, *, key):\n"
        "        self.weight = eqx.nn.Linear(config.task.input_dim, 'scalar', key=key)\n\n"
        "    def __call__(self, context_x, context_y, query_x):\n"
        "        return Output(self.weight(query_x), Trace())\n"
    )
    config = replace(small_config(), model=import_model("noteless_model:Noteless"))
    finish(run.parent / "custom", config)
    scorecard_of(run.parent / "custom", load_model(run.parent / "custom"))
    found = read_run(open_run(run.parent / "custom"))
    assert found.scorecard is not None
    assert found.references is not None
    assert found.notes == ()
