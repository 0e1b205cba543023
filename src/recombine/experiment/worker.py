"""`python -m recombine.experiment.worker`: one job, in a process of its own.

The job comes as a line of JSON on stdin, events go out as lines of JSON on stdout. When stdin closes, whoever started
the worker is gone, and it saves and leaves, as on SIGTERM.
"""

import json
import os
import signal
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from recombine.errors import InputError
from recombine.experiment.interrupt import Interrupted, StopRequest, run_interruptibly
from recombine.experiment.machine import prepare

SECONDS_BETWEEN_EVENTS = 0.5


def main() -> int:
    prepare(threads=1)
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_leave_when_alone, daemon=True).start()
    try:
        run_interruptibly(lambda request: _work(job, request), lambda text: None)
    except Interrupted as interrupted:
        return 128 + interrupted.signum
    except (InputError, OSError, ArithmeticError, MemoryError) as error:
        _tell("failed", error=str(error) or type(error).__name__)
        return 1
    _tell("done")
    return 0


def _leave_when_alone() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


def _tell(event: str, **data: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **data}) + "\n")
    sys.stdout.flush()


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
        with request.may_leave(lambda: None):
            store_scorecard(path)


def store_scorecard(path: Path) -> dict[str, Any]:
    """The scorecard of the run's newest checkpoint, measured if it is not there yet."""
    from recombine.experiment.scorecard import make_scorecard, read_scorecard, write_scorecard
    from recombine.experiment.trained import load_trained

    trained = load_trained(path)
    card = read_scorecard(path)
    if card is None or card["step"] != trained.step:
        card = make_scorecard(*trained)
        write_scorecard(path, card)
    return card


if __name__ == "__main__":
    sys.exit(main())
