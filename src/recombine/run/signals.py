"""SIGINT and SIGTERM: the work saves and ends; a second one ends it at once.

The work runs in a thread of its own. Python handles signals in the main thread only, and there only between two of
its own instructions: a main thread inside XLA's compiler would not hear them for seconds.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SHOW_CURSOR = "\x1b[?25h"  # a live display hides it

T = TypeVar("T")


class Interrupted(Exception):
    """A signal ended the work, after it saved."""

    def __init__(self, signum: int):
        self.signum = signum
        super().__init__(f"{signal.Signals(signum).name}: saved, and left; the same command resumes")


class _Region:
    """A part of the work in which it may be ended: taken by the main thread, or closed by the work, never both.

    A handler of a signal may interrupt the main thread anywhere in here and ask the same: there is no lock that it
    could wait for, only one operation on a dictionary, which nothing interrupts.
    """

    def __init__(self, on_exit: Callable[[], None]):
        self.on_exit = on_exit
        self._owner: dict[str, str] = {}

    def take(self) -> bool:
        """Whether the main thread has it, now or since an earlier time."""
        return self._owner.setdefault("owner", "main") == "main"

    def close(self) -> None:
        """The work goes on, unless the main thread was first: it is leaving, and the work waits for the end."""
        if self._owner.setdefault("owner", "work") != "work":
            threading.Event().wait()


class StopSignal:
    """What the work asks between two steps (`requested`), and where it may be ended on the spot (`exit_allowed`)."""

    def __init__(self) -> None:
        self.signum: int | None = None
        self._region: _Region | None = None
        self.ended = threading.Event()  # the work has, in whatever way

    def requested(self) -> bool:
        return self.signum is not None

    @contextmanager
    def exit_allowed(self, on_exit: Callable[[], None]) -> Iterator[None]:
        """Inside, the work would lose nothing by being ended at once, after `on_exit`: while it compiles, mostly.

        The work writes inside only in `writing`; a main thread that has begun to leave keeps it from getting out.
        """
        before, self._region = self._region, _Region(on_exit)
        try:
            yield
        finally:
            if self._region is not None:  # `writing` may have put another in its place
                self._region.close()  # before it is forgotten: a main thread that has it must find it again
            self._region = before

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Around a write inside `exit_allowed`: the work is not ended in the middle of it."""
        region = self._region
        if region is None:
            yield
            return
        region.close()
        self._region = None
        try:
            yield
        finally:
            self._region = _Region(region.on_exit)

    def try_exit(self) -> bool:
        """Whether the work may be ended now. If so it has been seen to its end: only leaving is left to do."""
        region = self._region
        if region is None or not region.take():
            return False
        with suppress(OSError):
            region.on_exit()
        return True

    def ask(self, signum: int) -> None:
        """As a signal would, from another handler of the main thread, and wait until the process can be left."""
        self.signum = signum
        while not self.ended.wait(0.1) and not self.try_exit():
            pass


def run_interruptibly(work: Callable[[StopSignal], T], say: Callable[[str], None]) -> T:
    """Do the work; on a signal, let it save, and raise `Interrupted`."""
    stop = StopSignal()
    if threading.current_thread() is not threading.main_thread():  # no signal comes here
        return work(stop)
    results: list[T] = []
    errors: list[BaseException] = []

    def do() -> None:
        try:
            results.append(work(stop))
        except BaseException as error:
            errors.append(error)
        finally:
            stop.ended.set()

    def leave(signum: int, message: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(SHOW_CURSOR)
        say(message)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(128 + signum)

    def handle(signum: int, _: object) -> None:
        if stop.requested():
            leave(signum, "left at once; the last checkpoint is kept")
        stop.signum = signum
        if stop.try_exit():
            leave(signum, str(Interrupted(signum)))
        say(f"{signal.Signals(signum).name}: saving (once more to leave at once)")

    before = {signum: signal.signal(signum, handle) for signum in SIGNALS}
    thread = threading.Thread(target=do, daemon=True)
    try:
        _start(thread)
        while thread.is_alive():
            thread.join(0.1)
            if stop.signum is not None and stop.try_exit():
                leave(stop.signum, str(Interrupted(stop.signum)))
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
    if errors:
        raise errors[0]
    if not results:  # memory ran out, even for the error: nothing is known to be saved
        raise MemoryError
    if stop.signum is not None:
        raise Interrupted(stop.signum)
    return results[0]


def _start(thread: threading.Thread) -> None:
    try:
        thread.start()
    except RuntimeError as error:  # how Python says that there is no memory for it
        raise MemoryError(str(error)) from error
