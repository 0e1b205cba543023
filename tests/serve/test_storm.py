"""Many requests during a training run: the processor time of the server is measured, and must be bounded."""

import os
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from recombine.bench.contender import enter
from recombine.bench.contender_process import ContenderProcess
from recombine.config.preset import preset_config
from recombine.serve.budget import SHARE
from tests.serve.demo_runs import copy_demo_run
from tests.serve.server import serving

EARLY = 10  # turns that do not count
RUNS = ("transformer-connected+-seed0", "hypertransformer-connected+-seed0")
STORM = """
import os, sys, threading, urllib.parse
from contextlib import suppress
from http.client import HTTPConnection
os.nice(19)
with suppress(OSError), open("/proc/self/autogroup", "w") as file:  # a session's own, where it means nothing otherwise
    file.write("19")
port, runs = int(sys.argv[1]), [urllib.parse.quote(name) for name in sys.argv[2:]]
named = "&".join(f"run={name}" for name in runs)
paths = [f"/api/explore?{named}&weights={i % 7 + 1},1,0,0,0,0&length=31&draw={i}" for i in range(40)]
paths += [f"{path}&latent1={i % 5},0,0,0,0,0" for i, path in enumerate(paths)]  # the second is the hypertransformer's
paths += ["/api/runs", f"/api/curves?{named}", f"/api/difference?one={runs[0]}&other={runs[1]}", "/static/vega.js"] * 5
paths += [f"/api/models?{named}", "/api/claims?study=.", "/api/claims?study=none", "/nothing"] * 5
def ask(first):
    i = first
    while True:
        try:
            connection = HTTPConnection("127.0.0.1", port, timeout=600)
            connection.request("GET", paths[i % len(paths)], headers={"Host": "evil.example"} if i % 11 == 0 else {})
            connection.getresponse().read()
            connection.close()
        except OSError:
            return
        i += 7
def follow():
    connection = HTTPConnection("127.0.0.1", port, timeout=600)
    with suppress(OSError):
        connection.request("GET", "/api/events?since=0")
        answer = connection.getresponse()
        while answer.readline():
            pass
for _ in range(8):
    threading.Thread(target=follow, daemon=True).start()
for k in range(16):
    threading.Thread(target=ask, args=(5 * k,), daemon=True).start()
sys.stdin.read()
"""


def storm(port: int) -> subprocess.Popen:
    """Sixteen clients that ask as fast as they are answered, and eight that watch, in a low-priority process."""
    command = [sys.executable, "-c", STORM, str(port), *RUNS]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def processor_time(process: int) -> float:
    """Processor seconds that a process and its children have used."""
    found = 0.0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            fields = path.read_text().rpartition(")")[2].split()
            if process in (int(path.parent.name), int(fields[1])):
                found += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


@pytest.mark.slow
def test_a_storm_beside_a_training(tmp_path: Path) -> None:
    """Training with and without many requests, in turns. The speeds are printed; the share of the cores that the server
    and its models use must be bounded.

    RECOMBINE_STORM_TURNS and RECOMBINE_STORM_STEPS set the number and the length of the turns.
    """
    turns, steps = (int(os.environ.get(f"RECOMBINE_STORM_{name}", few)) for name, few in (("TURNS", 3), ("STEPS", 60)))
    for name in RUNS:
        copy_demo_run(f"paper/{name}", tmp_path / name)
    config = preset_config("paper", "transformer")
    rates: dict[bool, list[float]] = {False: [], True: []}
    taken = lasted = 0.0
    with (
        serving(tmp_path, "--share", str(SHARE)) as server,
        ContenderProcess(enter("fast", config, os.cpu_count() or 1)) as training,
    ):
        training.await_ready(900)
        named = "&".join(f"run={name.replace('+', '%2B')}" for name in RUNS)
        assert server.get(f"/api/explore?{named}&weights=1,1,0,0,0,0&length=31", timeout=900).status == 200
        for turn in range(-EARLY, 2 * turns):  # the first use up what was saved for bursts, and do not count
            stormy = turn < 0 or turn % 2 == 1
            clients = storm(server.port) if stormy else None
            try:
                if stormy:
                    time.sleep(1)
                start, had = time.monotonic(), processor_time(server.process.pid)
                training.begin_turn(steps)
                seconds = training.end_turn(900).seconds
                had, lasts = processor_time(server.process.pid) - had, time.monotonic() - start
                if turn >= 0:
                    rates[stormy].append(steps / seconds)
                if turn > 0 and stormy:
                    taken += had
                    lasted += lasts
                told = f"{steps / seconds:.2f} steps/s, the server had {had / lasts / (os.cpu_count() or 1):.1%}"
                print("with" if stormy else "without", told, flush=True)  # noqa: T201
            finally:
                if clients is not None:
                    clients.communicate(timeout=60)
    ratios = [with_it / without for without, with_it in zip(rates[False], rates[True], strict=True)]
    print(f"with / without, median of neighbours: {statistics.median(ratios):.3f}")  # noqa: T201
    part = taken / lasted / (os.cpu_count() or 1)
    print(f"the server and its models had {part:.2%} of all cores during the storms")  # noqa: T201
    assert part < 0.02
