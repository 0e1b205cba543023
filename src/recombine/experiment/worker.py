"""`python -m recombine.experiment.worker`: jobs, one after the other, in a process of its own.

A job comes as a line of JSON on stdin, events go out as lines of JSON on stdout. When stdin closes, whoever started the
worker is gone or has no more to do, and it saves and leaves, as on SIGTERM. One process for many jobs: what it has
compiled for one it has for the next.
"""

import json
import os
import queue
import signal
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import IO, Any

from recombine.errors import InputError
from recombine.experiment.interrupt import Interrupted, StopRequest, run_interruptibly
from recombine.experiment.machine import prepare

SECONDS_BETWEEN_EVENTS = 0.5

events: IO[str] = sys.stdout


def main() -> int:
    global events
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")  # a user's model may print: that goes to stderr
    os.dup2(2, 1)
    prepare(threads=1)
    jobs: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_receive, args=(jobs,), daemon=True).start()
    while True:
        job = jobs.get()
        try:
            run_interruptibly(lambda request, job=job: _work(job, request), lambda text: None)
        except Interrupted as interrupted:
            return 128 + interrupted.signum
        except (InputError, OSError, ArithmeticError, MemoryError) as error:
            _tell("failed", error=str(error) or type(error).__name__)
        else:
            _tell("done")


def _receive(jobs: "queue.Queue[dict[str, Any]]") -> None:
    for line in sys.stdin:
        jobs.put(json.loads(line))
    os.kill(os.getpid(), signal.SIGTERM)


def _tell(event: str, **data: Any) -> None:
    events.write(json.dumps({"event": event, **data}) + "\n")
    events.flush()


def _work(job: dict[str, Any], request: StopRequest) -> None:
    from recombine.config import Config
    from recombine.config_file import override, parse_toml
    from recombine.model.own import import_model

    if job.get("own"):
        import_model(job["own"])
    config = override(Config(), parse_toml(job["config"], "job"))
    path = Path(job["path"])
    if job["kind"] == "references":
        from recombine.experiment.reference import store_references

        with request.may_leave(lambda: None):
            store_references(path, config)
        return
    from recombine.experiment.run import RunOptions, run

    told = 0.0
    options = RunOptions(resume_anyway=job.get("resume_anyway", False))
    with closing(run(config, path, options, request, lambda text: _tell("said", text=text))) as reports:
        for report in reports:
            if time.monotonic() - told >= SECONDS_BETWEEN_EVENTS:
                told = time.monotonic()
                _tell("progress", step=report.step, loss=report.loss, row=report.row)
    if not request.requested():
        from recombine.experiment.scorecard import store_scorecard
        from recombine.experiment.selection import store_selection
        from recombine.experiment.trained import load_trained

        with request.may_leave(lambda: None):
            trained = load_trained(path)
            for kind in job.get("after", ()):
                {"scorecard": store_scorecard, "selection": store_selection}[kind](path, trained)


if __name__ == "__main__":
    sys.exit(main())
