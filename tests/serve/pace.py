"""`python -m tests.serve.pace`: how fast the explorer answers, and how smooth the page is with many runs.

Run it on an otherwise idle machine. It prints measurements, and asserts no durations.
"""

import json
import shutil
import time
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from urllib.parse import urlencode

from tests.page.browser import Browser
from tests.serve.server import Address, copy_demo_run, serving

PAIR = [f"paper/{model}-connected+-seed0" for model in ("transformer", "hypertransformer")]
ANSWERS = 200
RUNS = 1_000
ROWS = 1_000
LOADING = 300.0
FRAMES = """new Promise((done) => {
    const place = document.querySelector('.tall'), gaps = [];
    let last = performance.now();
    const next = (now) => {
        gaps.push(now - last);
        last = now;
        place.scrollTop += 40;
        if (gaps.length < 300) requestAnimationFrame(next); else done(gaps.slice(5));
    };
    requestAnimationFrame(next);
})"""
FILTER = """((text) => {
    const start = performance.now(), field = document.getElementById('filter');
    field.value = text;
    field.dispatchEvent(new Event('input'));
    document.getElementById('table').getBoundingClientRect();
    return performance.now() - start;
})"""


def main() -> None:
    with serving(None, "--demo") as server:
        seconds = [answer(server, i) for i in range(-3, ANSWERS)][3:]
        tell("an answer of two models of the paper's size", [1000 * one for one in seconds])
    with TemporaryDirectory() as directory:
        make_runs(Path(directory))
        with serving(Path(directory)) as server, Browser() as browser:
            browser.open(f"{server.url}/#runs", ready="runs", patience=LOADING)
            tell("a frame while the table is scrolled", browser.evaluate(FRAMES))
            words = ["seed7", "transformer seed1", "", "run-99", "done 5", ""]
            tell("a filter", [browser.evaluate(f"{FILTER}({json.dumps(word)})") for word in words * 5])
            start = time.monotonic()
            before = browser.evaluate("document.getElementById('curves').dataset.drawn") or 0
            browser.evaluate("document.getElementById('pick-all').click()")
            browser.wait_for(f"Number(document.getElementById('curves').dataset.drawn) > {before}", LOADING)
            print(f"all {RUNS:,} runs selected and their curves drawn: {time.monotonic() - start:.1f} s")  # noqa: T201


def answer(server: Address, i: int) -> float:
    task = {"weights": f"{i % 7 + 1},0,{i % 5},{i % 3},0,0", "length": 31, "draw": max(i, 0) % 40}
    start = time.monotonic()
    found = server.get(f"/api/explore?{urlencode([*(('run', run) for run in PAIR), *task.items()])}", timeout=LOADING)
    assert found.status == 200, found.body
    return time.monotonic() - start


def make_runs(directory: Path) -> None:
    """Copies of a run with as many rows as a long run; every tenth has another seed and configuration."""
    copy_demo_run("quick/transformer-connected+-seed0", source := directory.parent / "source")
    row = json.loads((source / "metrics.jsonl").read_text().splitlines()[-1])
    text = "".join(json.dumps(row | {"step": 10 * (i + 1), "loss": 1 / (i + 1)}) + "\n" for i in range(ROWS))
    config = (source / "config.toml").read_text()
    for i in range(RUNS):
        run = directory / f"run-{i // 10}-seed{i % 10}"
        run.mkdir()
        shutil.copy(source / "status.json", run)
        changed = config.replace("seed = 0", f"seed = {i % 10}", 1)
        changed = changed.replace("learning_rate = 0.001", f"learning_rate = {0.001 + 1e-6 * (i // 10)}")
        (run / "config.toml").write_text(changed)
        (run / "metrics.jsonl").write_text(text)


def tell(what: str, milliseconds: list[float]) -> None:
    last = quantiles(milliseconds, n=20)[-1]
    print(f"{what}: median {median(milliseconds):.0f} ms, 95 % within {last:.0f} ms ({len(milliseconds)})")  # noqa: T201


if __name__ == "__main__":
    main()
