"""Handling of SIGINT and SIGTERM: on the first signal the work saves and ends, on the second it ends at once.

The work runs in a separate thread. Python handles signals only in the main thread, between two bytecode instructions:
a main thread inside XLA's compiler would not react for seconds.
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
    """A signal ended the work, after the work had saved."""

    def __init__(self, signum: int):
        self.signum = signum
        super().__init__(f"{signal.Signals(signum).name}: saved and exited; the same command resumes")


class _Region:
    """A part of the work in which the process may exit. The first decides: if the main thread takes the region, the
    process exits; if the work closes it, the work continues.

    A signal handler may interrupt the main thread anywhere in here and call the same functions. So there is no lock,
    which could deadlock, but a single atomic operation on a dictionary.
    """

    def __init__(self, on_exit: Callable[[], None]):
        self.on_exit = on_exit
        self._owner: dict[str, str] = {}

    def take(self) -> bool:
        """Take the region for the main thread. True if the main thread has it, now or from an earlier call."""
        return self._owner.setdefault("owner", "main") == "main"

    def close(self) -> None:
        """Close the region, and continue. If the main thread has taken it, the process is exiting: wait for that."""
        if self._owner.setdefault("owner", "work") != "work":
            threading.Event().wait()


class StopSignal:
    """The stop request, which the work checks between steps (`requested`); `exit_allowed` permits an immediate exit."""

    def __init__(self) -> None:
        self.signum: int | None = None
        self._region: _Region | None = None
        self.ended = threading.Event()  # set when the work has ended, in whatever way

    def requested(self) -> bool:
        return self.signum is not None

    @contextmanager
    def exit_allowed(self, on_exit: Callable[[], None]) -> Iterator[None]:
        """Within this context, a signal calls `on_exit` and ends the process at once. Use it only where everything is
        saved, for work that cannot check `requested`: mostly compiling.

        Inside, the work may write files only within `writing`. Once the main thread has begun to exit, the work cannot
        leave this context any more.
        """
        before, self._region = self._region, _Region(on_exit)
        try:
            yield
        finally:
            if self._region is not None:  # `writing` may have replaced it
                self._region.close()  # before it is replaced: a main thread that has taken it must find it again
            self._region = before

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Protects a write inside `exit_allowed`: the process does not exit in the middle of it."""
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
        """Try to end the work now. If True, `on_exit` has been called, and the process only has to exit."""
        region = self._region
        if region is None or not region.take():
            return False
        with suppress(OSError):
            region.on_exit()
        return True

    def ask(self, signum: int) -> None:
        """Request a stop like a signal, from another handler in the main thread; wait until the process can exit."""
        self.signum = signum
        while not self.ended.wait(0.1) and not self.try_exit():
            pass


def run_interruptibly(
    work: Callable[[StopSignal], T], say: Callable[[str], None], before_exit: Callable[[], None] = lambda: None
) -> T:
    """Do the work in a thread. On a signal, let it save, then raise `Interrupted`.

    Where the work allows an immediate exit, nothing is raised: `before_exit` is called, and the process ends.
    """
    stop = StopSignal()
    if threading.current_thread() is not threading.main_thread():  # signals are handled elsewhere
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
            leave(signum, "exited at once; the last checkpoint is kept")
        stop.signum = signum
        if stop.try_exit():
            before_exit()
            leave(signum, str(Interrupted(signum)))
        say(f"{signal.Signals(signum).name}: saving (send it again to exit at once)")

    before = {signum: signal.signal(signum, handle) for signum in SIGNALS}
    thread = threading.Thread(target=do, daemon=True)
    try:
        _start(thread)
        while thread.is_alive():
            thread.join(0.1)
            if stop.signum is not None and stop.try_exit():
                before_exit()
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
