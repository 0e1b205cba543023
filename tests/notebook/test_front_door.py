"""What a notebook needs, the Python of the docs, and the notebooks."""

import ast
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest

import recombine
import recombine as rc
from recombine.config.preset import preset_config
from recombine.storage.demo import demo_archives

PACKAGE = Path(recombine.__file__).parent
RUN = "hypertransformer-connected+-seed0"


def test_the_names_are_those_of_the_stub() -> None:
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    names = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert names | {"__version__"} == set(recombine.__all__) == set(dir(recombine))
    for name in recombine.__all__:
        assert getattr(recombine, name) is not None
    with pytest.raises(AttributeError):
        _ = recombine.trian  # pyright: ignore


def test_importing_loads_nothing() -> None:
    code = "import sys; before = set(sys.modules); import recombine; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stdout) == ["recombine"]


def test_a_room_and_the_function_share_a_name() -> None:
    import recombine.train.loop as loop

    assert rc.train.loop is loop  # pyright: ignore
    assert callable(rc.train)


def stored_rows(run: str) -> list[dict]:
    with zipfile.ZipFile(demo_archives()["quick"]) as archive:
        return [json.loads(line) for line in archive.read(f"{run}/metrics.jsonl").splitlines()]


def test_the_frame_is_what_the_files_say() -> None:
    rows = stored_rows(RUN)
    frame = rc.load(f"demo/quick/{RUN}").frame()
    assert list(frame.columns) == [
        "run", "model", "support", "seed", "step", "split", "r2", "mse", "probe", "novel",
    ]  # fmt: skip
    splits = ("in_dist", "ood", "control", "control_modules")
    expected = [(row["step"], split, row[split]["r2"]) for row in rows for split in splits]
    assert list(zip(frame.step, frame.split, frame.r2, strict=True)) == expected
    last = frame[(frame.split == "ood") & (frame.step == rows[-1]["step"])].iloc[0]
    assert last.probe == rows[-1]["probe"]["ood"][-1]


def test_frames_of_either_library_by_mask_and_with_references() -> None:
    runs = rc.runs("demo/quick")
    assert isinstance(runs.frame(), pd.DataFrame)
    assert isinstance(runs.frame(library="polars"), pl.DataFrame)
    assert len(runs.frame()) == sum(len(run.frame()) for run in runs)
    references = runs.frame(references=True)
    assert {"ridge", "oracle"} < set(references.model)
    masks = runs[:1].frame(by_mask=True)
    assert set(masks["mask"].str.len()) == {6}
    with pytest.raises(rc.InputError, match="pandas"):
        runs.frame(library="pands")  # pyright: ignore


def test_nothing_fills_a_screen() -> None:
    runs = rc.runs("demo/quick")
    shown = [runs, runs.study, runs[0], runs[0].stored, runs[0].config, rc.load(f"demo/quick/{RUN}").trained]
    shown += [runs[0].rows[-1], runs[0].rows[-1].in_dist, *runs.verdicts()]
    for one in shown:
        assert len(repr(one)) < 400, type(one)
    for one in (runs, runs.study, runs[0], runs[0].config):
        assert one._repr_html_().count("<tr>") >= 2
        assert len(one._repr_html_()) < 5000


def test_what_is_wrong_is_told_in_a_line() -> None:
    for wrong in (
        lambda: rc.load("demo/quick/nobody"),
        lambda: rc.load("demo/small"),
        lambda: rc.load("demo/quick"),
        lambda: rc.load("nowhere"),
        lambda: rc.runs(),
        lambda: rc.draw(rc.runs("demo/quick"), "result"),
        lambda: rc.configure("hypertransformer", changes={"model.num_layer": 3}),
        lambda: rc.configure("hypertransformer", changes={"model.num_layers": 3, "model": {"num_layers": 2}}),
        lambda: rc.train("mlp"),
        lambda: rc.sample(split="test"),  # pyright: ignore
        lambda: rc.examine(jax.nn.relu),  # pyright: ignore
    ):
        with pytest.raises(rc.InputError) as error:
            wrong()
        assert "\n" not in str(error.value)


def test_changes_may_be_dotted_or_nested() -> None:
    dotted = rc.configure("transformer", preset="smoke", changes={"model.num_layers": 3, "task.support": "connected"})
    tables = rc.configure(
        "transformer", preset="smoke", changes={"model": {"num_layers": 3}, "task.support": "connected"}
    )
    assert dotted == tables
    assert dotted.model.num_layers == 3  # pyright: ignore
    assert rc.configure(dotted, seed=4).seed == 4
    assert rc.configure("transformer", preset="smoke") == preset_config("smoke", "transformer")


def test_the_report_of_a_demo_can_be_drawn() -> None:
    runs = rc.runs("demo/quick")
    assert runs.draw("results").to_dict()["datasets"]
    assert "results" in runs.figures
    assert len(runs.verdicts()) == 7


class Mean(eqx.Module):
    scale: jax.Array

    def __init__(self, config: rc.Config, *, key: jax.Array):
        self.scale = jax.random.normal(key, ())

    def __call__(self, context_x: jax.Array, context_y: jax.Array, query_x: jax.Array) -> rc.Output:
        return rc.Output(self.scale * context_y.mean(), rc.Trace())


def test_a_model_that_was_never_imported_is_examined() -> None:
    config = rc.configure(preset="smoke")
    model = eqx.tree_at(lambda model: model.scale, Mean(config, key=jax.random.key(0)), jax.numpy.ones(()))
    found = rc.examine(model, config, full=False)
    assert found.label == "Mean"
    assert found.scores.ood.r2 == pytest.approx(0, abs=1e-6), "the mean of the context, by the definition of R²"
    assert "Mean" in str(found)
    assert "<table>" in found._repr_html_()


def test_a_patched_latent_is_executed() -> None:
    run = rc.load(f"demo/quick/{RUN}")
    episodes = rc.sample(run, "ood", 64)
    inferred = rc.predict(run, episodes)
    again = rc.patch(run, episodes, inferred.latent)
    np.testing.assert_allclose(again.y, inferred.y, atol=1e-5)
    true, wrong = (rc.patch(run, episodes, which) for which in ("true", "wrong"))
    assert true.r2 > inferred.r2 > wrong.r2, "as its stored scorecard says"
    explicit = [rc.patch(run, episodes, "explicit", steps=steps) for steps in (0, 3)]
    np.testing.assert_allclose(explicit[0].y, inferred.y, atol=1e-5)
    assert explicit[1].r2 > inferred.r2 + 0.1, "as its stored scorecard says"
    one = run.model.execute(jax.numpy.ones(6), episodes.query_x[3])  # pyright: ignore
    assert rc.patch(run, episodes, np.ones(6)).y[3] == pytest.approx(float(one), abs=1e-5)
    with pytest.raises(rc.InputError, match="latent"):
        rc.patch(run, episodes, np.ones(5))
    for steps in (-1, 1.5, 101):
        with pytest.raises(rc.InputError, match="steps"):
            rc.patch(run, episodes, "explicit", steps=steps)
    with pytest.raises(rc.InputError, match="execute"):
        rc.patch(rc.load("demo/quick/transformer-connected+-seed0"), episodes, "true")


ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
START, DEMO, OWN = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_start_is_short() -> None:
    lines = [line for line in START.splitlines() if line.strip()]
    assert len(lines) <= 12
    assert sum("import" in line for line in lines) == 1


@pytest.mark.parametrize("code", [START, DEMO, OWN], ids=["start", "demo", "own"])
def test_the_python_runs(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "python.md", "exec"), {"__name__": "python_page"})
    printed = capsys.readouterr().out
    assert "in_dist" in printed
    if code == START:
        assert re.search(r"Episodes\(1,?000 of ood .*R² = -?\d", printed)
        assert list(tmp_path.glob("runs/*/metrics.jsonl"))
    if code == DEMO:
        assert (tmp_path / "results.png").stat().st_size > 10_000


NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def cells(notebook: Path, kind: str = "code") -> list[str]:
    found = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == kind]


def run_cells(codes: list[str]) -> dict[str, Any]:
    """Run the cells in one namespace, and render what a notebook would show below each."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, code in enumerate(codes):
        tree, shown = ast.parse(code), None
        if isinstance(last := tree.body[-1], ast.Expr):
            tree.body.pop()
            shown = ast.Expression(last.value)
        exec(compile(tree, f"cell {number}", "exec"), names)
        if shown is not None:
            value = eval(compile(shown, f"cell {number}", "eval"), names)
            if to_dict := getattr(value, "to_dict", None):
                assert to_dict(), "a figure without a specification, or an empty table"
            names[f"shown {number}"] = value
    return names


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_notebooks_are_stored_without_outputs(notebook: Path) -> None:
    found = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in found)
    for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", "\n".join(cells(notebook, "markdown"))):
        assert (notebook.parent / link).is_file(), link


def test_play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    found = run_cells(cells(ROOT / "notebooks" / "play.ipynb"))
    patched, r2 = found["patched"], found["r2"]
    assert patched["the true latent"].r2 > patched["its own"].r2 > patched["another episode's"].r2
    assert r2[-1] > r2[0] + 0.1, "explicit inference helps"
    assert r2[0] == pytest.approx(patched["its own"].r2, abs=1e-4)


@pytest.mark.slow
def test_the_novel_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = run_cells(cells(ROOT / "notebooks" / "novel_part.ipynb"))["table"].set_index("prediction")
    whole, novel = table["R², all of the task"], table["R², novel part"]
    assert novel["best blend"] == pytest.approx(0.0, abs=1e-3)
    assert whole["best blend"] > whole["transformer"] > whole["hypertransformer"]
    assert novel["hypertransformer"] > novel["transformer"]
    assert (whole["truth"], novel["truth"]) == (1.0, 1.0)


@pytest.mark.slow
def test_your_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    found = run_cells(cells(ROOT / "notebooks" / "your_model.ipynb"))
    assert found["card"].scores.in_dist.r2 == pytest.approx(found["run"].rows[-1].in_dist.r2, abs=1e-4)
    assert re.search(r"ood +R² -?\d|PyTorch is not installed", capsys.readouterr().out)
