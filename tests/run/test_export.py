"""An exported run has the same scores and the same model, and no files that are needed only for resuming."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import recombine as rc
from recombine.cli.main import main
from recombine.config.toml import write_toml
from recombine.errors import InputError
from recombine.run.load import load_model
from recombine.serve.explorer.explorer import Explorer
from recombine.study.collect import collect
from tests.reliability.small_run import finish, small_config


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("place") / "runs"
    for seed in (0, 1):
        finish(place / f"seed{seed}", small_config(seed=seed))
    return place


def test_the_same_run(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "shared"
    assert main(["export", str(runs / "seed0"), str(runs / "seed1"), "--out", str(out), "--weights"]) == 0
    assert capsys.readouterr().out.splitlines() == [str(out / "seed0"), str(out / "seed1")]
    before, after = collect([runs]), collect([out])
    assert [run.rows for run in before.runs] == [run.rows for run in after.runs]
    assert [run.config for run in before.runs] == [run.config for run in after.runs]
    assert not (out / "seed0" / "checkpoints").exists()
    card = (out / "seed0" / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert f"| {after.runs[0].last.ood.r2:.3f} |" in card
    assert write_toml(after.runs[0].config).rstrip() in card
    one, other = load_model(runs / "seed1"), load_model(out / "seed1")
    assert (one.config, one.step) == (other.config, other.step)
    for a, b in zip(jax.tree.leaves(one.model), jax.tree.leaves(other.model), strict=True):
        np.testing.assert_array_equal(a, b)
    env = json.loads((out / "seed0" / "env.json").read_text())
    assert set(env["starts"][0]) == {"step", "identity", "python", "commit"}, "nothing of whose machine it was"


def test_a_whole_directory(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sweep is exported with its list."""
    out = tmp_path / "shared"
    assert main(["export", str(runs), "--out", str(out)]) == 0
    assert capsys.readouterr().out.splitlines() == [str(out / "seed0"), str(out / "seed1")]
    assert not (out / "sweep.jsonl").exists()
    (runs / "sweep.jsonl").write_text("listed\n")
    assert main(["export", str(runs), "--out", str(out)]) == 0
    assert (out / "sweep.jsonl").read_text() == "listed\n"


def make_sweeps(runs: Path, place: Path) -> None:
    """Two directories of one run each, both with the list of a sweep."""
    for seed in (0, 1):
        shutil.copytree(runs / f"seed{seed}", place / f"sweep{seed}" / f"seed{seed}")
        (place / f"sweep{seed}" / "sweep.jsonl").write_text(f"listed {seed}\n")


@pytest.mark.parametrize("named", [["sweep0", "sweep1"], ["."]])
def test_two_sweeps_in_one_place_would_lose_a_list(
    runs: Path, tmp_path: Path, named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    make_sweeps(runs, tmp_path / "sweeps")
    paths = [str(tmp_path / "sweeps" / name) for name in named]
    assert main(["export", *paths, "--out", str(tmp_path / "shared")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "sweep.jsonl" in error
    assert not (tmp_path / "shared").exists()


def test_the_list_of_another_sweep_is_not_replaced(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list of the same sweep, which may have grown, is replaced."""
    make_sweeps(runs, tmp_path)
    out = tmp_path / "shared"
    assert main(["export", str(tmp_path / "sweep0"), "--out", str(out)]) == 0
    assert main(["export", str(tmp_path / "sweep1"), "--out", str(out)]) == 2
    assert "sweep.jsonl" in capsys.readouterr().err
    assert not (out / "seed1").exists()
    (tmp_path / "sweep0" / "sweep.jsonl").write_text("listed 0\nlisted since\n")
    assert main(["export", str(tmp_path / "sweep0"), "--out", str(out)]) == 0
    assert (out / "sweep.jsonl").read_text() == "listed 0\nlisted since\n"


def test_the_list_goes_with_a_sweeps_archive(runs: Path, tmp_path: Path) -> None:
    """It is not exported with a single run of the sweep."""
    make_sweeps(runs, tmp_path)
    assert main(["export", str(tmp_path / "sweep0"), "--out", str(tmp_path / "one.zip")]) == 0
    assert main(["export", str(tmp_path / "one.zip"), "--out", str(tmp_path / "again")]) == 0
    assert (tmp_path / "again" / "sweep.jsonl").read_text() == "listed 0\n"
    assert main(["export", str(tmp_path / "one.zip" / "seed0"), "--out", str(tmp_path / "alone")]) == 0
    assert not (tmp_path / "alone" / "sweep.jsonl").exists()


def test_without_parameters_there_is_no_model(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(runs / "seed0"), "--out", str(tmp_path / "shared")]) == 0
    assert main(["eval", str(tmp_path / "shared" / "seed0")]) == 2
    assert "has no parameters; `recombine export --weights`" in capsys.readouterr().err


def test_what_was_examined_is_told_without_parameters(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output is the same as before the export."""
    assert main(["eval", "--json", str(runs / "seed1")]) == 0
    card = capsys.readouterr().out
    assert main(["export", str(runs), "--out", str(tmp_path / "shared")]) == 0
    capsys.readouterr()
    assert main(["eval", "--json", str(tmp_path / "shared" / "seed1")]) == 0
    assert capsys.readouterr().out == card


@pytest.mark.parametrize("damage", [b"", b"x" * 64, (1 << 60).to_bytes(8, "little") + b"{}"])
def test_damaged_parameters(runs: Path, tmp_path: Path, damage: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(runs / "seed0"), "--out", str(tmp_path / "shared"), "--weights"]) == 0
    (tmp_path / "shared" / "seed0" / "model.safetensors").write_bytes(damage)
    assert main(["eval", str(tmp_path / "shared" / "seed0")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_parameters_go_with_their_own_scores(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finish(tmp_path / "run", stop_at=5)
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "shared"), "--weights"]) == 2
    assert "its newest checkpoint is at step 5, but it was last measured at step 4" in capsys.readouterr().err
    assert not (tmp_path / "shared").exists()
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "shared")]) == 0


@pytest.mark.parametrize("text", ["{", "[]", '{"starts": [{}]}', '{"starts": 3}', "[" * 100_000])
def test_a_damaged_environment(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    finish(tmp_path / "run", stop_at=0)
    (tmp_path / "run" / "env.json").write_text(text)
    assert main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "shared")]) == 2
    assert "its env.json cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "shared").exists()


def test_mistakes(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (empty := tmp_path / "empty").mkdir()
    for arguments, words in [
        ([], "at least one run"),
        ([str(runs / "nowhere")], "no such directory"),
        ([str(empty)], "no run in it"),
        ([str(runs / "seed0"), str(runs / "seed0")], "the same name"),
        ([str(runs / "seed0"), "--out", str(runs)], "already has this run"),
    ]:
        out = [] if "--out" in arguments else ["--out", str(tmp_path / "nowhere")]
        assert main(["export", *arguments, *out]) == 2
        assert words in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


def test_vector_labels_from_training_to_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With explicit inference; then the run is exported, loaded, sampled from, and refused by the explorer."""
    few = ["optimizer.num_steps=2", "measure.snapshots=1", "measure.episodes=16", "model.num_layers=1"]
    changes = ["task.output_dim=3", "task.support=111000,000111,110100", "model.inference_steps=1", *few]
    run, out = tmp_path / "run", tmp_path / "out"
    train = ["train", "--model", "hypertransformer", "--preset", "smoke", "--out", str(run), "--set", *changes]
    assert main(train) == 0
    capsys.readouterr()
    assert main(["eval", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    references = found["references"]
    for split in ("in_dist", "ood", "control"):
        assert references["known_latent"][split]["r2"] == pytest.approx(1)
        assert references["context_mean"][split]["r2"] == pytest.approx(0, abs=1e-9)
        assert np.isfinite(found[split]["r2"])
    assert references["known_latent"]["novel"]["ood"]["slope"] == pytest.approx(1)
    assert found["interventions"]["ood"]["true"] is not None
    assert found["explicit_inference"]["own"]["by_step"]
    assert main(["report", str(run)]) == 0
    assert main(["export", str(run), "--weights", "--out", str(out)]) == 0
    assert "labels of 3 numbers" in (out / "run" / "MODEL_CARD.md").read_text()
    loaded = rc.load(out / "run")
    episodes = rc.sample(loaded, "ood", 5)
    assert "o = 3" in repr(episodes)
    assert episodes._repr_html_()
    prediction = rc.predict(loaded, episodes)
    assert prediction.y.shape == (5, 3)
    np.testing.assert_allclose(rc.patch(loaded, episodes, prediction.latent).y, prediction.y, rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match=r"task\.output_dim"):
        Explorer().describe(run)
