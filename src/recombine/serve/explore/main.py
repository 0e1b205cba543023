"""`python -m recombine.serve.explore.main SHARE`: the explorer, in a process of its own.

A question comes as a line of JSON on stdin, its answer goes out as one on stdout. While nobody asks and the machine is
not busy, what was asked about last is compiled for the other context lengths. When stdin closes, it leaves.
"""

import json
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

from recombine.errors import InputError
from recombine.jobs.worker import stay_nice
from recombine.run.machine import prepare
from recombine.serve.budget import Allowance
from recombine.serve.busy import Load

SECONDS_OF_QUIET = 2.0  # after which nobody seems to be moving anything


def main() -> int:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever prints, prints elsewhere
    stay_nice()  # as the server that has started it
    prepare(threads=1)
    from recombine.serve.explore.explorer import Explorer

    questions: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_receive, args=(questions,), daemon=True).start()
    load = Load(lambda: (os.getpid(), os.getppid()))  # with the server's
    explorer, recent, allowance = Explorer(), [], Allowance(float(sys.argv[1]), load=load)
    while True:
        while owed := allowance.owed():
            time.sleep(owed)
        try:
            line = questions.get(timeout=SECONDS_OF_QUIET if recent else None)
        except queue.Empty:
            if not load.is_busy() and not _warm(explorer, recent):
                recent = []
            continue
        if line is None:
            return 0
        question = json.loads(line)
        recent = [Path(path) for path in question["paths"]]
        start, known = time.process_time(), explorer.firsts
        answers.write(_answer(explorer, question) + "\n")
        answers.flush()
        if explorer.firsts > known:
            allowance.forgive(time.process_time() - start)


def _answer(explorer: Any, question: dict[str, Any]) -> str:
    """A line of JSON. Whatever goes wrong is told to who asked: the models that are loaded are everybody's."""
    try:
        return json.dumps({"answer": _asked(explorer, question)}, allow_nan=False)
    except InputError as error:
        return json.dumps({"error": str(error)})
    except Exception as error:
        return json.dumps({"error": f"{type(error).__name__}: {error}"})


def _asked(explorer: Any, question: dict[str, Any]) -> Any:
    from recombine.model.custom import import_model
    from recombine.serve.explore.scene import Task

    paths = [Path(path) for path in question["paths"]]
    for custom in question.get("custom", ()):
        import_model(custom)
    if question["ask"] == "describe":
        return [explorer.describe(path) for path in paths]
    return explorer.explore(paths, Task(**question["task"]), question["latents"])


def _warm(explorer: Any, paths: list[Path]) -> bool:
    try:
        return explorer.warm(paths)
    except Exception:  # a model of one's own may take no other length; who asks for it is told why
        return False


def _receive(questions: "queue.Queue[str | None]") -> None:
    for line in sys.stdin:
        questions.put(line)
    questions.put(None)


if __name__ == "__main__":
    sys.exit(main())
