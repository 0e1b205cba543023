"""The entry point of the command line: parses the arguments, runs the command, returns an exit code."""

import contextlib
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated

import tyro

from recombine import __version__
from recombine.cli.bench import Bench
from recombine.cli.construct import Construct
from recombine.cli.eval import Eval
from recombine.cli.export import Export
from recombine.cli.report import Report
from recombine.cli.reproduce import Reproduce
from recombine.cli.serve import Serve
from recombine.cli.sweep import Sweep
from recombine.cli.task import Task
from recombine.cli.train import Train
from recombine.errors import Failed, InputError
from recombine.run.signals import Interrupted
from recombine.terminal.output import complain, keep_results_apart, print_line, results


class UsageError(Exception):
    """The arguments cannot be parsed."""


Command = (
    Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Eval, tyro.conf.subcommand("eval")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Task, tyro.conf.subcommand("task")]
    | Annotated[Construct, tyro.conf.subcommand("construct")]
    | Annotated[Sweep, tyro.conf.subcommand("sweep")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Serve, tyro.conf.subcommand("serve")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. Returns the exit code: 0 success, 1 failure, 2 wrong usage, 130 or 143 for a signal.

    Without arguments, this is the process's own command, and its stdout is for the results.
    """
    own_process = arguments is None
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments in (["--version"], ["-V"]):
        print_line(f"recombine {__version__}")
        return 0
    try:
        command = parse(arguments)
        if own_process:
            keep_results_apart()
        command.run()
    except (UsageError, InputError) as error:
        complain(str(error))
        return 2
    except Interrupted as interrupted:
        complain(str(interrupted))
        return 128 + interrupted.signum
    except KeyboardInterrupt:
        complain("interrupted")
        return 130
    except BrokenPipeError:  # the reader of our output has closed it, like `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), results().fileno())
        return 0
    except (Failed, OSError, MemoryError, ArithmeticError) as error:
        complain(str(error) or type(error).__name__)
        return 1
    except RuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):  # JAX's word for out of memory; any other error is a bug
            raise
        complain(f"out of memory; choose smaller sizes ({str(error).splitlines()[0]})")
        return 1
    return 0


def parse(
    arguments: list[str],
) -> Reproduce | Train | Eval | Report | Task | Construct | Sweep | Export | Serve | Bench:
    """The command that the arguments name. Raises a one-line UsageError if they cannot be parsed."""
    markers = (tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
    description = "Can an in-context learner recombine what it knows? (--version prints the version.)"
    complaint = io.StringIO()
    if arguments[:1] == ["sweep"] and arguments[1:2] not in (["run"], ["results"], ["--help"], ["-h"]):
        arguments = ["sweep", "run", *arguments[1:]]
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(Command, prog="recombine", description=description, args=arguments, config=markers)  # pyright: ignore
    except SystemExit as leaving:
        if not leaving.code:  # --help
            raise
    raise UsageError(_one_line(complaint.getvalue()))


def _one_line(box: str) -> str:
    """tyro's framed error message as one line, without the frame and the hint to the help.

    The frame is drawn with `─`, or with hyphens if the terminal lacks that character.
    """
    lines = [re.sub(r"^[│╭╰]\s?|\s*[│╮╯]$", "", line).strip() for line in box.splitlines()[1:]]
    parts = [" ".join(part.split()) for part in re.split(r"[─-]{3,}", " ".join(lines))]
    said = [part for part in parts if part and not part.startswith(("For full helptext", "Argument helptext"))]
    for pattern, words in REWORDED.items():
        said = [re.sub(pattern, words, part) for part in said]
    return f"{'; '.join(said)} (see recombine --help)"


def _choices(match: re.Match[str]) -> str:
    value, argument, choices = match.groups()
    return f"{argument} = {value}: one of {choices.replace(chr(39), '')}"


# tyro's messages, and ours in their place: the argument, its value and what would be right
REWORDED = {
    r"Error parsing (\S+): invalid literal for int\(\) with base 10: (.*)": r"\1 = \2: an integer",
    # an optional integer; other optional arguments are paths or text, which accept anything
    r"Error parsing (\S+): no type matching .*? could be instantiated from \[(.*?)\].*": r"\1 = \2: an integer",
    r"Error parsing (\S+): Could not find valid parse for arguments: \[(.*?)\].*": r"\1 = \2: integers",
    r"invalid choice (.+?) for argument '(\S+)'\. Expected one of \((.*?),?\)\.": _choices,
}
