"""`recombine sweep` from a grid to the winner; the results are compared with a computation by hand."""

import json
import sys
from pathlib import Path
from statistics import fmean, stdev

import pytest
from scipy import stats

from recombine.cli.jobs import best_before
from recombine.cli.main import main
from recombine.jobs.grid import parse_grid, short_names, sweep_runs
from recombine.page.sweep import render
from recombine.record.score import Score
from recombine.record.sweep import Selection, SelectionScores
from recombine.storage.archive import write_archive
from recombine.storage.sweep_list import read_list, write_list
from recombine.storage.writer import write_selection
from recombine.study.sweep_results import sweep_results

GRID = """
[grid]
"model.embed_dim" = [8, 16]
[model]
num_heads = 2
num_layers = 1
[optimizer]
num_steps = 6
batch_size = 4
[measure]
episodes = 40
snapshots = 2
"""


LINE = {"name": "a", "configuration": "a", "seed": 0, "num_steps": 1, "point": {}}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A sweep of two configurations and two seeds, one run at a time, in a separate process, as users run it."""
    import subprocess

    place = tmp_path_factory.mktemp("sweep")
    (place / "grid.toml").write_text(GRID)
    arguments = ["sweep", "--grid", str(place / "grid.toml"), "--preset", "smoke", "--seeds", "2", "--workers", "1"]
    arguments += ["--out", str(place / "out")]
    command = [sys.executable, "-m", "recombine", *arguments]
    process = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert process.returncode == 0, process.stderr
    return place / "out", arguments


def test_a_sweep_and_its_results(swept: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    out, arguments = swept
    assert main(["sweep", "results", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["states"] == {"done": 4}
    assert found["selected_by"] == "select_ood"
    for one in found["best"]:
        rows, selected = [], []
        for seed in (0, 1):
            run = out / f"{one['configuration']}-seed{seed}"
            rows.append(json.loads((run / "metrics.jsonl").read_text().splitlines()[-1]))
            selected.append(json.loads((run / "selection.json").read_text())["select"]["ood"]["r2"])
        r2 = [row["ood"]["r2"] for row in rows]
        assert one["ood"]["mean"] == pytest.approx(fmean(r2))
        assert one["ood"]["high"] == pytest.approx(max(r2)), "of two, the range"
        assert one["select_ood"]["mean"] == pytest.approx(fmean(selected))
        assert one["select_ood"]["mean"] != one["ood"]["mean"], "selected on other episodes than reported"
    means = [one["select_ood"]["mean"] for one in found["best"]]
    assert means == sorted(means, reverse=True)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert "started" not in captured.err, "a second time nothing is trained"
    assert "4 runs, 4 of them done, 1 at a time" in captured.err
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_the_best_so_far_may_have_been_done_before(swept: tuple[Path, list[str]]) -> None:
    out, _ = swept
    rows = {run: json.loads((run / "metrics.jsonl").read_text().splitlines()[-1]) for run in out.glob("transformer-*")}
    best = max(rows, key=lambda run: rows[run]["ood"]["r2"])
    names = [run.name for run in rows]
    assert best_before(names, out) == (rows[best]["ood"]["r2"], best.name)
    assert best_before(["nowhere"], out) is None


def test_other_settings_in_the_same_place_are_refused(
    swept: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    out, arguments = swept
    grid = out.parent / "grid.toml"
    grid.write_text(GRID.replace("num_steps = 6", "num_steps = 7"))
    try:
        assert main(arguments) == 2
    finally:
        grid.write_text(GRID)
    assert "optimizer.num_steps: 6 → 7" in capsys.readouterr().err


def test_tables_queries_and_the_page(swept: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = swept
    assert main(["sweep", "results", str(out)]) == 0
    text = capsys.readouterr().out
    for words in ("4 done", "embed_dim=16", "embed_dim=8", "share of variance", "index.html"):
        assert words in text
    assert (out / "report" / "parallel.png").is_file()
    query = 'SELECT "model.embed_dim" AS width, count(*) AS runs FROM runs GROUP BY width ORDER BY width'
    assert main(["sweep", "results", str(out), "--sql", query, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"width": 8, "runs": 2}, {"width": 16, "runs": 2}]
    assert main(["sweep", "results", str(out), "--sql", f"SELECT name, '{'x' * 200}' AS long FROM runs LIMIT 1"]) == 0
    assert f"{'x' * 200}" in capsys.readouterr().out, "a row is a line, however long"
    assert main(["sweep", "results", str(out), "--sql", "SELECT nonsense FROM runs"]) == 2
    assert "nonsense" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "grid = None: name one"),
        (["--grid", "nowhere.toml"], "there is no such file"),
        (["--grid", "paper-transformer", "--seeds", "0"], "seeds = 0: an integer from 1"),
        (["--grid", "paper-transformer", "--sample", "0"], "sample = 0"),
        (["--grid", "paper-transformer", "--sample", "3", "--max-runs", "3"], "leave one of them out"),
        (["--grid", "paper-transformer", "--retries", "-1"], "retries = -1"),
        (["results", "nowhere"], "not the directory of a sweep"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", *arguments]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert len(error.splitlines()) == 1


def score(r2: float) -> Score:
    return Score(r2, 1 - r2, None, 0.1)


def make_sweep(out: Path, scores: dict[tuple[int, str], list[float | None]]) -> None:
    """A sweep with invented scores: for each (embed_dim, kind) the R² of each seed, or None for a waiting run."""
    kinds = list(dict.fromkeys(kind for _, kind in scores))
    widths = list(dict.fromkeys(width for width, _ in scores))
    grid = parse_grid({"grid": {"model.embed_dim": widths, "model.kind": kinds}})
    seeds = range(len(next(iter(scores.values()))))
    runs = sweep_runs(grid, "smoke", seeds)
    write_list(out, [run.line() for run in runs])
    for run in runs:
        value = scores[run.point["model.embed_dim"], run.point["model.kind"]][run.config.seed]
        if value is not None:
            write_selection_of(out / run.name, 40, value)


def write_selection_of(run: Path, step: int, value: float = 0.5) -> None:
    run.mkdir(parents=True)
    select = SelectionScores(in_dist=score(1 - value / 10), ood=score(value))
    report = SelectionScores(in_dist=score(0.9), ood=score(value - 0.01))
    write_selection(run, Selection(1, step, select, report), "")


def test_the_ranking_and_what_matters_by_hand(tmp_path: Path) -> None:
    make_sweep(
        tmp_path,
        {
            (8, "transformer"): [0.1, 0.3],
            (16, "transformer"): [0.5, 0.7],
            (8, "hypertransformer"): [0.3, 0.3],
            (16, "hypertransformer"): [0.9, None],
        },
    )
    results = sweep_results(tmp_path)
    assert results.states == {"done": 7, "waiting": 1}
    assert [one.scores["select_ood"].mean for one in results.ranked] == pytest.approx([0.6, 0.3, 0.2])
    assert results.ranked[0].point == {"model.embed_dim": 16, "model.kind": "transformer"}
    assert results.ranked[0].scores["select_ood"].low == pytest.approx(0.5)
    assert results.best_in_dist == results.ranked[-1], "in distribution the order is the reverse"
    assert results.ranked[0].scores["ood"].mean == pytest.approx(0.59)
    # means 0.6, 0.3, 0.2 around 11/30; by width {16: 0.6, 8: 0.25}, by kind {transformer: 0.4, hypertransformer: 0.3}
    mean, total = 11 / 30, sum((x - 11 / 30) ** 2 for x in (0.6, 0.3, 0.2))
    shares = {one.field: one.share for one in results.importance}
    assert shares["model.embed_dim"] == pytest.approx(((0.6 - mean) ** 2 + 2 * (0.25 - mean) ** 2) / total)
    assert shares["model.kind"] == pytest.approx((2 * (0.4 - mean) ** 2 + (0.3 - mean) ** 2) / total)
    assert "<script>" in render(results)


def test_the_interval_of_three_seeds_and_how_many_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = [0.5, 0.7, 0.9]
    make_sweep(tmp_path, {(8, kind): values for kind in ("transformer", "hypertransformer")})
    first = sweep_results(tmp_path).ranked[0].scores["select_ood"]
    half = stats.t.ppf(0.975, 2) * stdev(values) / 3**0.5
    assert (first.low, first.high) == pytest.approx((0.7 - half, 0.7 + half))
    lines = (tmp_path / "sweep.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "sweep.jsonl").write_text("".join(lines[:-1]))
    assert main(["sweep", "results", str(tmp_path)]) == 0
    assert "mean over 2 to 3 seeds" in capsys.readouterr().out


def test_fields_of_one_last_word_are_told_apart() -> None:
    assert short_names(["model.hidden_dim", "task.hidden_dim", "optimizer.num_steps"]) == {
        "model.hidden_dim": "model.hidden_dim",
        "task.hidden_dim": "task.hidden_dim",
        "optimizer.num_steps": "num_steps",
    }


def test_supports_that_are_written_out_go_by_their_names(tmp_path: Path) -> None:
    few = {"name": "few", "masks": ["110000", "001100", "000011"]}
    runs = sweep_runs(parse_grid({"grid": {"task.support": [few, "connected+"]}}), "smoke", [0])
    write_list(tmp_path, [run.line() for run in runs])
    for i, run in enumerate(runs):
        (tmp_path / run.name).mkdir()
        scores = SelectionScores(in_dist=score(0.5 - i / 10), ood=score(0.5 - i / 10))
        write_selection(tmp_path / run.name, Selection(1, 40, scores, scores), "")
    assert [one.point for one in sweep_results(tmp_path).ranked] == [
        {"task.support": "few"},
        {"task.support": "connected+"},
    ]


def test_a_sweep_grows_by_seeds(tmp_path: Path) -> None:
    grid = parse_grid({"grid": {"model.embed_dim": [8, 16]}})
    write_list(tmp_path, [run.line() for run in sweep_runs(grid, "smoke", [0])])
    write_list(tmp_path, [run.line() for run in sweep_runs(grid, "smoke", [1])])
    assert sorted((line.configuration, line.seed) for line in read_list(tmp_path)) == [
        ("transformer-embed_dim=16", 0),
        ("transformer-embed_dim=16", 1),
        ("transformer-embed_dim=8", 0),
        ("transformer-embed_dim=8", 1),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "",
        '{"name": "a"}',
        *(json.dumps(LINE | {"name": name}) for name in ("..", ".", "", "a/b", "/a", "a\0")),
        *(json.dumps(LINE | {"point": {field: 1}}) for field in ("name", "NAME", "")),
        '{"name": "a", "configuration": "a", "seed": 0, "num_steps": 1, "point": 3}',
        "[]",
        "{",
    ],
)
def test_a_list_that_is_not_one(tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sweep.jsonl").write_text(f"{line}\n" if line else "")
    for query in ([], ["--sql", "SELECT 1"]):
        assert main(["sweep", "results", str(tmp_path), *query]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert "sweep" in error


def test_a_field_of_any_name_is_a_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names with quotation marks work; the names of the table's own columns are refused."""
    (tmp_path / "sweep.jsonl").write_text(json.dumps(LINE | {"point": {'a"b': 3}}) + "\n")
    write_selection_of(tmp_path / "a", 1)
    assert main(["sweep", "results", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["best"][0]["point"] == {'a"b': 3}
    assert main(["sweep", "results", str(tmp_path), "--json", "--sql", 'SELECT "a""b" AS x FROM runs']) == 0
    assert json.loads(capsys.readouterr().out) == [{"x": 3}]


def test_a_sweep_in_an_archive_goes_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An archive may be a sweep, or contain one in a directory; a single run is no sweep."""
    members = {"sweep.jsonl": json.dumps(LINE) + "\n"}
    members["inner/sweep.jsonl"] = json.dumps(LINE | {"name": "b"}) + "\n"
    write_selection_of(tmp_path / "b", 1)
    members["inner/b/selection.json"] = (tmp_path / "b" / "selection.json").read_text()
    write_archive(tmp_path / "s.zip", {name: text.encode() for name, text in members.items()})
    found = {}
    for where in ("s.zip", "s.zip/inner"):
        query = ["--json", "--sql", "SELECT name, state FROM runs"]
        assert main(["sweep", "results", str(tmp_path / where), *query]) == 0
        found[where] = json.loads(capsys.readouterr().out)
    assert found == {
        "s.zip": [{"name": "a", "state": "waiting"}],
        "s.zip/inner": [{"name": "b", "state": "done"}],
    }
    assert main(["sweep", "results", str(tmp_path / "s.zip" / "a")]) == 2
    assert "sweep.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize("stored", [{}, {"select": 3, "report": {}}, {"select": {"ood": {"r2": "high"}}, "report": {}}])
def test_a_selection_that_is_not_one(tmp_path: Path, stored: dict, capsys: pytest.CaptureFixture[str]) -> None:
    """A damaged selection is refused in one line; ignoring it would drop the run from the ranking."""
    line = {"name": "a", "configuration": "a", "seed": 0, "num_steps": 1, "point": {"task.support": ["110", "011"]}}
    (tmp_path / "sweep.jsonl").write_text(json.dumps(line) + "\n")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "selection.json").write_text(json.dumps({"format": 1, "step": 1} | stored))
    assert main(["sweep", "results", str(tmp_path), "--json"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "selection.json" in error


def test_queries_are_about_the_runs_alone(swept: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    out = swept[0]
    for query in (f"COPY runs TO '{out}/x.csv'", f"SELECT * FROM read_text('{out}/sweep.jsonl')", ""):
        assert main(["sweep", "results", str(out), "--sql", query]) == 2, query
        assert capsys.readouterr().err.startswith("recombine: sql = ")
    assert not (out / "x.csv").exists()
    assert (
        main(["sweep", "results", str(out), "--json", "--sql", "SELECT 'nan'::DOUBLE AS x, DATE '2020-01-02' AS d"])
        == 0
    )
    assert json.loads(capsys.readouterr().out) == [{"x": None, "d": "2020-01-02"}]
