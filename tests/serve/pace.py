"""`python -m tests.serve.pace`: how fast the explorer answers and draws, and how smooth the page is with many runs.

Run it on an otherwise idle machine. It prints measurements, and asserts no durations.
"""

import json
import os
import shutil
import time
from contextlib import suppress
from math import pi, sin
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from urllib.parse import urlencode

from recombine.cli.main import main as main_command
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


STORY = "document.getElementById('story')"
LINK = urlencode([*((f"run{i}", run) for i, run in enumerate(PAIR)), ("weights", "1,0,0,0.6,0,0"), ("length", "31")])


def main() -> None:
    first_pictures()
    with serving(None, "--demo") as server, Browser() as browser:
        browser.open(f"{server.url}/#runs", ready="runs", patience=LOADING)
        used = [processor_seconds(process) for process in (browser.process, server.process.pid)]
        browser.open(f"{server.url}/#explore&{LINK}", width=1440, ready="explore", patience=LOADING)
        used = [
            processor_seconds(process) - before
            for process, before in zip((browser.process, server.process.pid), used, strict=True)
        ]
        shown = browser.evaluate("performance.getEntriesByName('explored')[0].startTime")
        words = f"{used[0]:.2f} s of processor, the browser, to the last point; {used[1]:.2f} s, the server"
        print(f"serve --demo, the explorer: first picture after {shown:.0f} ms; {words}")  # noqa: T201
        drawings = "Number(document.documentElement.dataset.drawings)"
        for what, slider in (
            ("a weight", "#weights input"),
            ("K", ".inference input"),
            ("the latent", "#sliders input"),
            ("the examples", "#length"),
        ):
            tell_drag(browser, f"live, {what}", slider, drawings)
    with serving(None, "--demo") as server:
        seconds = [answer(server, i) for i in range(-3, ANSWERS)][3:]
        tell("an answer of the server, of two models of the paper's size", [1000 * one for one in seconds])
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


def first_pictures() -> None:
    """Time and processor time until the story is drawn, in a browser that has shown one small page."""
    with TemporaryDirectory() as directory:
        page, small = Path(directory) / "story.html", Path(directory) / "small.html"
        assert main_command(["export", "--page", str(page)]) == 0
        small.write_text('<!doctype html><html lang="en" data-ready="yes"><title>small</title></html>')
        with serving(None, "--demo") as server, Browser() as browser:
            browser.open(small, patience=LOADING)
            tell_first(browser, "serve --demo", server.url, "story")
            print(f"serve --demo: {processor_seconds(server.process.pid):.2f} s of processor, the server")  # noqa: T201
        with Browser() as browser:
            browser.open(small, patience=LOADING)
            tell_first(browser, "the static file", page.as_uri(), "yes")
            tell_drag(browser, "static, the mix", ".mix input", f"Number({STORY}.dataset.draws)")


def tell_first(browser: Browser, what: str, address: str, ready: str) -> None:
    before = processor_seconds(browser.process)
    browser.open(address, width=1280, height=720, ready=ready, patience=LOADING)
    browser.wait_for(f"{STORY}.dataset.settled === 'true'", LOADING)
    seconds = processor_seconds(browser.process) - before
    shown = browser.evaluate("performance.getEntriesByType('mark').find(({name}) => name === 'picture').startTime")
    print(f"{what}: first picture after {shown:.0f} ms; {seconds:.2f} s of processor, the browser, to the last point")  # noqa: T201


def processor_seconds(process: int) -> float:
    """Of a process, its children, and all processes in the session that it leads."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = path.read_text().rpartition(")")[2].split()
            if process in (int(path.parent.name), int(fields[1]), int(fields[3])):
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def thread_seconds(browser: Browser) -> float:
    browser.call("Performance.enable", timeDomain="threadTicks")
    metrics = {one["name"]: one["value"] for one in browser.call("Performance.getMetrics")["metrics"]}
    return metrics["TaskDuration"]


def tell_drag(browser: Browser, what: str, slider: str, drawings: str) -> None:
    """A real drag of 240 moves, ten times back and forth: fast enough for a slider with few values, such as K."""
    browser.evaluate(f"document.querySelector({json.dumps(slider)}).scrollIntoView({{block: 'center'}})")
    box = f"document.querySelector({json.dumps(slider)}).getBoundingClientRect()"
    left, y, width = browser.evaluate(f"(({{left, top, height, width}}) => [left, top + height / 2, width])({box})")
    points = [(left + width * (0.5 + 0.4 * sin(2 * pi * i / 24)), y) for i in range(240)]

    browser.drag(points)  # once unmeasured: the first use of a control compiles its program
    browser.wait_for("document.querySelector('.results')?.dataset.asking !== 'yes'", LOADING)
    browser.evaluate("window.values = 0; addEventListener('input', () => { window.values += 1; }, true)")
    before, start, processor = browser.evaluate(drawings), time.monotonic(), thread_seconds(browser)
    browser.drag(points)
    seconds, count = time.monotonic() - start, browser.evaluate(drawings) - before
    used = thread_seconds(browser) - processor
    values = browser.evaluate("window.values")
    words = f"{count / seconds:.1f} drawings a second, {count / used:.0f} per second of processor"
    print(f"a drag, {what}: {words} ({count} in {seconds:.1f} s, of {values} values of the slider)")  # noqa: T201


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
