"""The worker: times one contender on one job, in a process of its own.

`python -m recombine.bench.peer.worker MODULE STEPS REPEATS < job.json` writes one line of JSON: a `Timing`, or what is
`missing`. A process of its own, so that no contender meets the threads or the memory of another.
"""

import json
import platform
import sys
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from pathlib import Path
from time import perf_counter
from typing import Any

from recombine.bench.peer.job import Job, Missing


@dataclass(frozen=True)
class Timing:
    """What one contender took: seconds, and bytes of resident memory."""

    contender: str
    versions: dict[str, str]
    import_seconds: float
    setup_seconds: float  # until there is a stepper
    first_step_seconds: float  # what is compiled is compiled here
    num_steps: int
    seconds: tuple[float, ...]  # one for each time that num_steps steps were run
    last_loss: float
    import_bytes: int | None  # what the libraries take by themselves
    peak_bytes: int | None


def time_contender(module: str, job: Job, num_steps: int, repeats: int) -> Timing:
    """Import the module, make its stepper, warm it up, and time it."""
    start = perf_counter()
    contender = import_module(module)
    import_seconds, import_bytes = perf_counter() - start, peak_memory()

    start = perf_counter()
    stepper = contender.make_stepper(job)
    setup_seconds = perf_counter() - start

    start = perf_counter()
    loss = stepper(1)
    first_step_seconds = perf_counter() - start

    stepper(num_steps)  # a contender may compile once more for the number of steps
    seconds = []
    for _ in range(repeats):
        start = perf_counter()
        loss = stepper(num_steps)
        seconds.append(perf_counter() - start)
    return Timing(
        contender=module.rsplit(".", 1)[-1],
        versions={package: metadata.version(package) for package in contender.REQUIRES},
        import_seconds=import_seconds,
        setup_seconds=setup_seconds,
        first_step_seconds=first_step_seconds,
        num_steps=num_steps,
        seconds=tuple(seconds),
        last_loss=loss,
        import_bytes=import_bytes,
        peak_bytes=peak_memory(),
    )


def peak_memory() -> int | None:
    """The most resident memory this process has had; None where the system does not say.

    From Linux's VmHWM: `getrusage`'s maximum starts from that of the process which started this one.
    """
    status = Path("/proc/self/status")
    if platform.system() != "Linux" or not status.is_file():
        return None
    (line,) = (line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM:"))
    return 1024 * int(line.split()[1])


def report(module: str, job: Job, num_steps: int, repeats: int) -> dict[str, Any]:
    """The timing as plain data, or what is missing."""
    try:
        return asdict(time_contender(module, job, num_steps, repeats))
    except Missing as missing:
        reason = str(missing)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "recombine":
            raise
        reason = f"{error.name} is not installed"
    return {"contender": module.rsplit(".", 1)[-1], "missing": reason}


def main() -> None:
    module, num_steps, repeats = sys.argv[1:]
    fields = json.load(sys.stdin)
    job = Job(**{**fields, "masks": tuple(map(tuple, fields["masks"]))})
    sys.stdout.write(json.dumps(report(module, job, int(num_steps), int(repeats))) + "\n")


if __name__ == "__main__":
    main()
