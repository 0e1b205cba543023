import signal
import threading
import time
from collections.abc import Iterator

import pytest

from recombine.run.signals import StopSignal, run_interruptibly


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGUSR2)
    yield
    signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize("saves", [True, False])
def test_asked_from_a_handler_of_somebody_elses(saves: bool) -> None:
    """The handler goes on when the work has saved, or at once where there is nothing to save. It ends the process."""
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
