"""`recombine serve`: a web page to watch runs and to play with trained models."""

import logging
import os
import socket
import threading
import webbrowser
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import tyro

from recombine.checks import check_number, check_size
from recombine.cli.arguments import OptionalClass, plain_help
from recombine.errors import InputError
from recombine.files import check_path
from recombine.terminal.output import note, print_line

if TYPE_CHECKING:
    from uvicorn import Config, Server

RUNS = Path("runs")
BACKLOG = 128  # connections that the server takes at once, before it can end those that are too many
NICENESS = 5  # training goes first; the server also has a budget, see `recombine.serve.budget`


@dataclass(frozen=True)
@plain_help
class Serve:
    """Serve a web page of the runs in a directory: watch them train, compare them, and play with trained models."""

    directory: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[DIRECTORY]")] = None
    """The directory to search for runs: directly in it, a few levels below, or in archives. Default: runs."""
    demo: bool = False
    """Show the trained models that are shipped with Recombine, instead of a directory."""
    model: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """package.module:Class, for runs of a custom model."""
    task: OptionalClass = None
    """package.module:Class, for runs of a custom task."""
    port: int = 8642
    """The port, open to this machine only; 0 for any free port. From elsewhere: ssh -L 8642:localhost:8642 HOST."""
    share: float | None = None
    """The share of one core that the models may use while the machine is busy. Requests get half as much, verdicts a
    third. Default: 0.01; with --demo, no limit."""
    open: bool = False
    """Open the page in a browser."""

    def run(self) -> None:
        if self.demo and self.directory:
            raise InputError("directory", str(self.directory), "either a directory or --demo")
        from recombine.storage.demo import demo_archives, demo_directory

        chosen = demo_archives() if self.demo else None
        directory = demo_directory() if self.demo else self.directory or RUNS
        check_path("directory", directory)
        if not directory.is_dir():
            what = "is a file, not a directory" if directory.exists() else "there is no such directory"
            raise InputError("directory", str(directory), f"{what}; --demo shows trained models without one")
        check_size("port", self.port, least=0, most=65_535)
        if self.share is not None:
            check_number("share", self.share, above=0.0, most=1.0)
        from recombine.run.machine import prepare

        prepare(1)  # before a custom model starts JAX
        if self.model:
            from recombine.model.custom import import_model

            import_model(self.model)
        if self.task:
            from recombine.task.custom_task import import_task

            import_task(self.task)
        try:
            import uvicorn

            from recombine.serve.app import make_app
            from recombine.serve.connection import LARGEST_HEAD, Connection, in_pieces
        except ImportError as error:
            raise InputError("serve", error.name, "is not installed: pip install 'recombine[serve]'") from error
        with suppress(OSError):
            os.nice(NICENESS)
        with _bound(self.port) as listening:
            address = f"http://localhost:{listening.getsockname()[1]}"
            print_line(address)
            note("Press Ctrl-C to stop.")
            config = uvicorn.Config(
                in_pieces(make_app(directory, self.model, self.share, chosen, self.task)),
                http=Connection,
                h11_max_incomplete_event_size=LARGEST_HEAD,
                ws="none",
                log_level="error",  # a warning for each bad request would fill the terminal
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=500,
                backlog=BACKLOG,
                timeout_graceful_shutdown=1,
            )
            if self.open:  # in a thread: a browser in a terminal returns only when it is closed
                threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
            with suppress(KeyboardInterrupt):  # uvicorn has shut down in order, and raises it again
                _server(config).run(sockets=[listening])


def _server(config: "Config") -> "Server":
    """A server that prints nothing when it is told to end while pages are still open."""
    from uvicorn import Server

    class QuietServer(Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)
            super().handle_exit(sig, frame)

    return QuietServer(config)


def _bound(port: int) -> socket.socket:
    """A socket that listens on this machine only."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
        listening.listen(BACKLOG)  # a client that connects before the server is ready waits
    except OSError as error:
        listening.close()
        raise InputError("port", port, f"cannot be used ({error.strerror}); --port 0 takes any that is free") from error
    return listening
