"""`python -m recombine.serve.explorer.main SHARE DIRECTORY`: the explorer in its own process.

It reads each question, about runs below the directory, as a line of JSON from stdin, and writes the answer as a line of
JSON to stdout. While there is no question and the machine is not busy, it compiles the models of the last question for
the other context lengths. It ends when stdin closes.
"""

import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from recombine.errors import InputError
from recombine.jobs.worker import stay_nice
from recombine.record.codec import BadRecord, Record, decode, encode
from recombine.run.machine import prepare
from recombine.run.process import stdin_lines, take_stdout
from recombine.serve.budget import Budget
from recombine.serve.busy import Busyness
from recombine.serve.explorer.exchange import Descriptions, Question, Refusal

if TYPE_CHECKING:
    from recombine.serve.explorer.explorer import Explorer

SECONDS_OF_QUIET = 2.0  # wait after a question before compiling other lengths: a visitor may still be moving a slider


def main() -> int:
    answers = take_stdout()
    stay_nice()  # with the niceness of the server that started it
    prepare(threads=1)
    from recombine.serve.explorer.explorer import Explorer

    questions: queue.Queue[bytes | None] = queue.Queue()
    threading.Thread(target=_receive, args=(questions,), daemon=True).start()
    busyness = Busyness(lambda: (os.getpid(), os.getppid()))  # this process and the server
    explorer, budget = Explorer(Path(sys.argv[2])), Budget(float(sys.argv[1]), busyness=busyness)
    recent: list[Path] = []
    while True:
        while seconds := budget.seconds_to_wait():
            time.sleep(seconds)
        try:
            line = questions.get(timeout=SECONDS_OF_QUIET if recent else None)
        except queue.Empty:
            if not busyness.is_busy() and not compile_ahead(explorer, recent):
                recent = []
            continue
        if line is None:
            return 0
        start, known = time.process_time(), explorer.first_times
        recent, answer = answer_line(explorer, line)
        answers.write(f"{answer}\n")
        if explorer.first_times > known:
            budget.exempt(time.process_time() - start)


def answer_line(explorer: "Explorer", line: str | bytes) -> tuple[list[Path], str]:
    """The runs to compile ahead, and the answer. An error becomes an answer, so that the process survives."""
    paths: list[Path] = []
    try:
        question = decode(line, Question)
        paths = question.run_paths() if question.task is not None else []  # the page runs its models itself
        return paths, encode(_answer(explorer, question, question.run_paths()))
    except InputError as error:
        return paths, encode(Refusal(str(error)))
    except BadRecord as error:
        return paths, encode(Refusal(f"the question cannot be read ({error})"))
    except Exception as error:
        return paths, encode(Refusal(f"{type(error).__name__}: {error}"))


def _answer(explorer: "Explorer", question: Question, paths: list[Path]) -> Record:
    from recombine.model.custom import import_model
    from recombine.task.custom_task import import_task

    for custom in question.custom:
        import_model(custom)
    for custom in question.custom_tasks:
        import_task(custom)
    if question.task is not None:
        return explorer.explore(paths, question.task, question.latents)
    if question.weights:
        return explorer.pack(paths[0])
    if question.inputs is not None:
        return explorer.scene(paths[0], question.inputs)
    return Descriptions(tuple(explorer.describe(path) for path in paths))


def compile_ahead(explorer: "Explorer", paths: list[Path]) -> bool:
    """Compile one more context length of these models; False when there is none left."""
    try:
        return explorer.compile_ahead(paths)
    except Exception:  # a custom model may not accept other lengths; a visitor who chooses one gets the error
        return False


def _receive(questions: "queue.Queue[bytes | None]") -> None:
    for line in stdin_lines():
        questions.put(line)
    questions.put(None)


if __name__ == "__main__":
    sys.exit(main())
