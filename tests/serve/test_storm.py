"""What a storm of questions costs a training on the same machine: measured, and told."""

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recombine.bench.contender import enter
from recombine.bench.process import WorkerProcess
from recombine.cli.serve import demo_directory
from recombine.preset import preset_config
from tests.serve.server import serving

RUNS = ("transformer-connected+-seed0", "hypertransformer-connected+-seed0")
STORM = """
import os, sys, threading, urllib.parse
from http.client import HTTPConnection
os.nice(19)
port, runs = int(sys.argv[1]), [urllib.parse.quote(name) for name in sys.argv[2:]]
named = "&".join(f"run={name}" for name in runs)
paths = [f"/api/explore?{named}&weights={i % 7 + 1},1,0,0,0,0&length=15&draw={i}" for i in range(40)]
paths += ["/api/runs", f"/api/curves?{named}", f"/api/difference?one={runs[0]}&other={runs[1]}", "/static/vega.js"] * 5
def ask(first):
    i = first
    while True:
        try:
            connection = HTTPConnection("127.0.0.1", port, timeout=600)
            connection.request("GET", paths[i % len(paths)])
            connection.getresponse().read()
            connection.close()
        except OSError:
            return
        i += 7
for k in range(16):
    threading.Thread(target=ask, args=(5 * k,), daemon=True).start()
sys.stdin.read()
"""


def storm(port: int) -> subprocess.Popen:
    """Sixteen clients that ask as fast as they are answered, in a process that gives way to every other."""
    command = [sys.executable, "-c", STORM, str(port), *RUNS]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


@pytest.mark.slow
def test_a_storm_beside_a_training(tmp_path: Path) -> None:
    """Turns of a training with and without a storm, one after the other; no duration is asserted, it is told.

    RECOMBINE_STORM_TURNS and RECOMBINE_STORM_STEPS make them more, and longer.
    """
    turns, steps = (int(os.environ.get(f"RECOMBINE_STORM_{name}", few)) for name, few in (("TURNS", 3), ("STEPS", 20)))
    for name in RUNS:
        shutil.copytree(demo_directory() / name, tmp_path / name)
    config = preset_config("paper", "transformer")
    rates: dict[bool, list[float]] = {False: [], True: []}
    with (
        serving(tmp_path, "--share", "0.015") as server,
        WorkerProcess(enter("fast", config, os.cpu_count() or 1)) as worker,
    ):
        worker.receive(900)
        named = "&".join(f"run={name.replace('+', '%2B')}" for name in RUNS)
        assert server.get(f"/api/explore?{named}&weights=1,1,0,0,0,0&length=15", timeout=900).status == 200
        for turn in range(-1, 2 * turns):  # the first uses up what was saved for bursts, and does not count
            stormy = turn % 2 == 1
            clients = storm(server.port) if stormy else None
            try:
                if stormy:
                    time.sleep(1)
                worker.send(str(steps))
                seconds = worker.receive(900)["seconds"]
                if turn >= 0:
                    rates[stormy].append(steps / seconds)
            finally:
                if clients is not None:
                    clients.communicate(timeout=60)
        assert server.get("/api/runs", timeout=900).status == 200, "it has come through"
    calm, stormy = statistics.median(rates[False]), statistics.median(rates[True])
    print(f"\nsteps/s without {[round(rate, 2) for rate in rates[False]]}")  # noqa: T201
    print(f"steps/s with    {[round(rate, 2) for rate in rates[True]]}")  # noqa: T201
    print(f"median with / without: {stormy / calm:.4f}")  # noqa: T201
