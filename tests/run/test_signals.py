import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from recombine.run import signals
from recombine.run.signals import StopSignal, run_interruptibly


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGUSR2)
    yield
    signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize("saves", [True, False])
def test_asked_from_a_handler_of_somebody_elses(saves: bool) -> None:
    """The handler returns when the work has saved, or at once if there is nothing to save. It ends the process."""
    seen: list[str] = []
    stops: list[StopSignal] = []
    may_end = threading.Event()

    def work(stop: StopSignal) -> None:
        stops.append(stop)
        if saves:
            signal.raise_signal(signal.SIGUSR2)
            while not stop.requested():
                time.sleep(0.01)
            time.sleep(0.3)
            seen.append("saved")
        else:
            with stop.exit_allowed(lambda: seen.append("left")):
                signal.raise_signal(signal.SIGUSR2)
                may_end.wait(30)  # in the compiler, say

    def handle(signum: int, _: object) -> None:
        stops[0].ask(signum)
        seen.append("handled")
        raise SystemExit(1)

    signal.signal(signal.SIGUSR2, handle)
    with pytest.raises(SystemExit):
        run_interruptibly(work, lambda text: None)
    assert seen == ["saved" if saves else "left", "handled"]
    may_end.set()


@contextmanager
def not_for_ever() -> Iterator[None]:
    """Ends a main thread that deadlocks with an error."""

    def stuck(*_: object) -> None:
        raise AssertionError("the main thread waits for ever")

    before = signal.signal(signal.SIGALRM, stuck)
    signal.alarm(20)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_asked_while_the_main_thread_leaves() -> None:
    """A handler interrupts the main thread after it has taken the region, and asks for the same."""
    stop, entered, asked = StopSignal(), threading.Event(), []

    def on_exit() -> None:
        if not asked:
            asked.append(True)
            signal.raise_signal(signal.SIGUSR2)

    def work() -> None:
        with stop.exit_allowed(on_exit):
            entered.set()
            time.sleep(0.2)

    signal.signal(signal.SIGUSR2, lambda signum, _: stop.ask(signum))
    threading.Thread(target=work, daemon=True).start()
    entered.wait()
    with not_for_ever():
        assert stop.try_exit()
    assert asked


@pytest.mark.parametrize("line", range(6))
def test_asked_anywhere_while_the_main_thread_looks(line: int) -> None:
    """The handler interrupts each line in turn, while the work enters and leaves `exit_allowed`, and then saves."""
    stop, seen = StopSignal(), []

    def work() -> None:
        try:
            while not stop.requested():
                with stop.exit_allowed(lambda: None):
                    pass
            with stop.exit_allowed(lambda: None):
                pass
            seen.append("saved")
        finally:
            stop.ended.set()

    def ask(signum: int, _: object) -> None:
        sys.settrace(None)
        stop.ask(signum)
        seen.append("handled")

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if code.co_filename != signals.__file__ or code.co_name not in ("try_exit", "take"):
            return trace  # what checks types in the tests is around it
        if event == "line":
            lines.append(frame.f_lineno)
            if len(lines) == line + 1:
                signal.raise_signal(signal.SIGUSR2)
        return trace

    lines: list[int] = []
    left = False
    signal.signal(signal.SIGUSR2, ask)
    thread = threading.Thread(target=work, daemon=True)
    before = sys.gettrace()
    with not_for_ever():
        thread.start()
        try:
            while "handled" not in seen and thread.is_alive() and len(lines) <= line:
                lines.clear()
                sys.settrace(trace)
                left = stop.try_exit()
                sys.settrace(None)
                if left:
                    break
        finally:
            sys.settrace(before)
        assert left or "handled" in seen or stop.ended.wait()


def test_what_is_being_written_is_not_cut_off() -> None:
    stop, at, go = StopSignal(), threading.Barrier(2), threading.Event()

    def work() -> None:
        with stop.exit_allowed(lambda: None):
            with stop.writing():
                at.wait()
                at.wait()
            at.wait()
            go.wait()

    with stop.writing():  # outside, it changes nothing
        assert not stop.try_exit()
    threading.Thread(target=work, daemon=True).start()
    at.wait()
    assert not stop.try_exit()
    at.wait()
    at.wait()
    assert stop.try_exit()
    go.set()
