"""The entry point of the command line: parses the arguments, runs the command, returns an exit code."""

import contextlib
import io
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import Annotated

import tyro

from recombine import __version__
from recombine.cli.bench import Bench
from recombine.cli.construct import Construct
from recombine.cli.eval import Benchmark, Eval, Score, Verify
from recombine.cli.export import Export
from recombine.cli.report import Report
from recombine.cli.reproduce import Reproduce
from recombine.cli.serve import Serve
from recombine.cli.sweep import Sweep
from recombine.cli.task import Task
from recombine.cli.train import Train
from recombine.errors import Failed, InputError, describe, memory_errors
from recombine.run.process import settle_home
from recombine.run.signals import Interrupted
from recombine.terminal.help import fitting
from recombine.terminal.output import complain, keep_results_apart, print_line, results
from recombine.terminal.standard_streams import discard_output, name_output, settle_streams


class UsageError(Exception):
    """The arguments cannot be parsed."""


Command = (
    Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Eval, tyro.conf.subcommand("eval")]
    | Annotated[Score, tyro.conf.subcommand("score")]
    | Annotated[Benchmark, tyro.conf.subcommand("benchmark")]
    | Annotated[Verify, tyro.conf.subcommand("verify")]
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
    settle_streams()
    settle_home()
    try:
        with memory_errors():
            if arguments in (["--version"], ["-V"]):
                print_line(f"recombine {__version__}")
            else:
                command = parse(arguments)
                if own_process:
                    keep_results_apart()
                command.run()
        results().flush()  # here, so that its errors are handled like all others
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
        discard_output()
        return 0
    except (Failed, OSError, MemoryError, ArithmeticError) as error:
        name_output(error)
        complain(describe(error))
        return 1
    return 0


def parse(
    arguments: list[str],
) -> Reproduce | Train | Eval | Score | Benchmark | Verify | Report | Task | Construct | Sweep | Export | Serve | Bench:
    """The command that the arguments name. Raises a one-line UsageError if they cannot be parsed."""
    markers = (tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
    description = (
        "Train, measure and compare models on tasks that recombine known modules. (--version prints the version.)"
    )
    complaint = io.StringIO()
    if arguments[:1] == ["sweep"] and arguments[1:2] not in (["run"], ["results"], ["--help"], ["-h"]):
        arguments = ["sweep", "run", *arguments[1:]]
    try:
        with contextlib.redirect_stderr(complaint), fitting(arguments):
            command = tyro.cli(Command, prog="recombine", description=description, args=arguments, config=markers)  # pyright: ignore
    except SystemExit as leaving:
        if not leaving.code:  # --help
            sys.stdout.flush()
            raise
        raise UsageError(f"{_one_line(complaint.getvalue())} (see {_nearest_help(arguments)})") from None
    if any(option == "--set" and (not value or value.startswith("--")) for option, value in pairwise([*arguments, ""])):
        raise UsageError(f"--set needs at least one FIELD=VALUE (see {_nearest_help(arguments)})")  # tyro takes none
    return command


def _one_line(box: str) -> str:
    """tyro's framed error message as one line, without its colours, its frame and the hint to the help.

    The frame is drawn with `─`, or with hyphens if the terminal lacks that character.
    """
    parts: list[list[str]] = [[]]
    for line in re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines()[1:]:
        words = re.sub(r"^[│╭╰]|[│╮╯]$", "", line).strip()
        if re.fullmatch(r"[─-]{3,}", words):
            parts.append([])
        elif words:
            parts[-1].append(" ".join(words.split()))
    said = [_part(lines) for lines in parts if lines and not lines[0].startswith(("For full help", "Argument help"))]
    for pattern, words in REWORDED.items():
        said = [re.sub(pattern, words, part) for part in said]
    return "; ".join(said)


def _nearest_help(arguments: list[str]) -> str:
    """The command that prints the help closest to these arguments."""
    first, second = [*arguments, "", ""][:2]
    if first not in COMMANDS:
        return "recombine --help"
    return f"recombine {first} {second if second in COMMANDS[first] else ''}".rstrip() + " --help"


def _unrecognized(match: re.Match[str]) -> str:
    """The first option that is not known; the values that follow it are not options of their own."""
    words = match[1].split(", ")
    if words[0].startswith("-"):
        return f"no such option: {words[0]}"
    names = [name for command, inside in COMMANDS.items() for name in (command, *inside)]
    near = get_close_matches(words[0], names, n=1, cutoff=0.7)
    return f"no such command or option: {words[0]}{f' (did you mean {near[0]}?)' if near else ''}"


def _missing(match: re.Match[str]) -> str:
    """The names of the arguments that are missing; tyro gives them with all their help."""
    items = [item.split() for item in match[1].split("(required)") if item.strip()]
    names = [" ".join(words[:2]) if words[0].startswith("--") else words[0] for words in items]
    return f"{' and '.join(names)}: {'a value is' if len(names) == 1 else 'values are'} missing"


def _part(lines: list[str]) -> str:
    """One part of a complaint; of the options that tyro proposes with all their help, the names."""
    if lines[0].startswith("Perhaps you meant"):
        names = dict.fromkeys(line.split()[0].rstrip(",") for line in lines if line.startswith("--"))
        return f"did you mean {' or '.join(names)}?"
    return " ".join(lines)


def _choices(match: re.Match[str]) -> str:
    value, argument, choices = match.groups()
    names = choices.replace("'", "").split(", ")
    if "None" in names:  # the option may be left out; tyro then has its choices in any order
        names = sorted(name for name in names if name != "None")
    return f"{argument} = {value}: one of {', '.join(names)}"


COMMANDS = {
    "reproduce": (), "train": (), "eval": (), "score": (), "benchmark": (), "verify": (), "report": (),
    "task": ("show", "design", "sample"), "construct": (), "sweep": ("run", "results"), "export": (),
    "serve": (), "bench": (),
}  # fmt: skip

# tyro's messages, and ours in their place: the argument, its value and what would be right
REWORDED = {
    r"Unrecognized options: (.*)": _unrecognized,
    r"Missing from recombine [^:]*: (.*)": _missing,
    r"Available subcommands: (.*)": r"the commands are \1",
    r"Missing value for argument '(?:command\.)?(\S+)'\. Expected .*": r"\1: a value is missing",
    r"Expected one of \{(.*)\}\.": r"a command is missing: one of \1",
    r"Error parsing (\S+): invalid literal for int\(\) with base 10: (.*)": r"\1 = \2: an integer",
    r"Error parsing (\S+): could not convert string to float: (.*)": r"\1 = \2: a number",
    # an optional integer; other optional arguments are paths or text, which accept anything
    r"Error parsing (\S+): no type matching .*? could be instantiated from \[(.*?)\].*": r"\1 = \2: an integer",
    r"Error parsing (\S+): Could not find valid parse for arguments: \[(.*?)\].*": r"\1 = \2: integers",
    r"invalid choice (.+?) for argument '(\S+)'\. Expected one of \((.*?),?\)\.": _choices,
}
