"""The command line: parse, call, print.

Results go to stdout; progress and errors to stderr.

JAX takes seconds to import, so nothing here imports it before the arguments have been found good.
"""

import contextlib
import io
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from recombine import __version__, paper
from recombine.checks import LARGEST_COUNT, MOST_NUMBERS, check_seed, check_size
from recombine.errors import InputError
from recombine.files import check_output
from recombine.task.names import Control, Split
from recombine.task.support_spec import parse_support


@dataclass(frozen=True)
class Show:
    """Show a support: its masks, the held-out ones, and whether it is connected."""

    support: Annotated[str, tyro.conf.arg(metavar="SUPPORT")] = paper.DEFAULT_SUPPORT
    """connected, disconnected, connected+, K-hot, K-hot:M, masks such as 110,011, or a file of masks."""
    held_out: Annotated[str | None, tyro.conf.arg(metavar="MASKS")] = None
    """Masks to hold out, instead of all others with as many active modules."""
    figure: Path | None = None
    """Draw the graph of the modules to this PNG or SVG file."""
    json: bool = False
    """Print JSON, which --support reads back from a file."""

    def run(self) -> None:
        from recombine.report.tables import print_support

        support = parse_support(self.support, self.held_out)
        if self.figure is not None:
            check_output("figure", self.figure, (".png", ".svg"))
            from recombine.report.drawing import draw_support, save_figure

            save_figure(draw_support(support), self.figure)
            _note(f"drawn to {self.figure}")
        if self.json:
            _print_json(support.as_dict())
        else:
            print_support(support)


@dataclass(frozen=True)
class Design:
    """Draw a random support of a given size and connectivity."""

    size: int
    """The number of masks."""
    modules: int = paper.NUM_MODULES
    """The number of modules M."""
    k: int = 2
    """The number of active modules in each mask."""
    disconnected: bool = False
    """Two or more groups of modules that no mask ties together."""
    seed: int = 0
    """Draws the masks."""
    json: bool = False
    """Print JSON, which --support reads back from a file."""

    def run(self) -> None:
        from recombine.report.tables import print_support
        from recombine.task.design import design_support

        check_seed("seed", self.seed)
        check_size("modules", self.modules, most=1000)
        support = design_support(self.modules, self.k, self.size, not self.disconnected, self.seed)
        if self.json:
            _print_json(support.as_dict())
        else:
            print_support(support)


@dataclass(frozen=True)
class Sample:
    """Sample episodes to an .npz file of plain arrays."""

    out: Path
    """The .npz file to write."""
    support: Annotated[str, tyro.conf.arg(metavar="SUPPORT")] = paper.DEFAULT_SUPPORT
    """connected, disconnected, connected+, K-hot, K-hot:M, masks such as 110,011, or a file of masks."""
    held_out: Annotated[str | None, tyro.conf.arg(metavar="MASKS")] = None
    """Masks to hold out, instead of all others with as many active modules."""
    split: Split = "in_dist"
    """ood: tasks of held-out masks; control: each episode from a teacher of its own."""
    control: Control = "teacher"
    """What the control draws afresh for each episode: the whole teacher, or its modules alone."""
    episodes: int = 1000
    """How many."""
    length: int = 32
    """N: the context pairs and the query."""
    input_dim: int = paper.INPUT_DIM
    """d: numbers in an input x."""
    hidden_dim: int = paper.HIDDEN_DIM
    """h: the teacher's hidden units."""
    seed: int = 0
    """Draws the teacher and the episodes."""

    def run(self) -> None:
        from recombine.config import TaskConfig

        check_output("out", self.out, (".npz",))
        check_size("episodes", self.episodes, most=LARGEST_COUNT)
        check_size("length", self.length, least=2)
        check_seed("seed", self.seed)
        support = parse_support(self.support, self.held_out)
        support.masks_of(self.split)  # refuses `ood` where nothing is held out
        task = TaskConfig(support, self.input_dim, self.hidden_dim, self.length, self.control)
        from recombine.experiment.dataset import sample_dataset, save_dataset

        arrays = sample_dataset(task, self.split, self.episodes, self.seed)
        save_dataset(self.out, arrays)
        _print(f"{self.out}: {', '.join(f'{name} {array.shape}' for name, array in arrays.items())}")


@dataclass(frozen=True)
class Task:
    """Supports and episodes: show, design, sample."""

    command: Annotated[
        Annotated[Show, tyro.conf.subcommand("show")]
        | Annotated[Design, tyro.conf.subcommand("design")]
        | Annotated[Sample, tyro.conf.subcommand("sample")],
        tyro.conf.arg(name=""),
    ]

    def run(self) -> None:
        self.command.run()


@dataclass(frozen=True)
class Construct:
    """Appendix A: build a hypernetwork as a linear transformer, and report its error."""

    modules: int = paper.NUM_MODULES
    """M."""
    input_dim: int = paper.INPUT_DIM
    """d."""
    hidden_dim: int = paper.HIDDEN_DIM
    """h."""
    output_dim: int = 1
    """o."""
    trials: int = 1000
    """How many random hypernetworks, each with an input and a latent of its own."""
    seed: int = 0
    """Draws them."""
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        for name in ("modules", "input_dim", "hidden_dim", "output_dim"):
            check_size(name, getattr(self, name), most=1024)
        check_size("trials", self.trials)
        check_seed("seed", self.seed)
        # One block's weights, which the trials hold side by side.
        width = self.modules + self.input_dim + self.hidden_dim + self.output_dim
        numbers = self.trials * 2 * self.modules * width * self.hidden_dim
        if numbers > MOST_NUMBERS:
            raise InputError("trials", self.trials, f"{numbers:,} weights at these sizes; at most {MOST_NUMBERS:,}")
        from recombine.measure.construction_error import construction_error

        sizes = (self.modules, self.input_dim, self.hidden_dim, self.output_dim)
        errors = {dtype: construction_error(self.seed, *sizes, self.trials, dtype) for dtype in ("float32", "float64")}
        if self.json:
            result = {
                "sizes": dict(zip(("M", "d", "h", "o"), sizes, strict=True)),
                "trials": self.trials,
                "seed": self.seed,
                "max_abs_error": {dtype: error.max_abs_error for dtype, error in errors.items()},
                "max_abs_output": {dtype: error.max_abs_output for dtype, error in errors.items()},
            }
            _print_json(result)
            return
        _print(
            f"{self.trials} random hypernetworks (M={sizes[0]}, d={sizes[1]}, h={sizes[2]}, o={sizes[3]}), each as one "
            f"block of {self.modules} linear-attention heads"
        )
        for dtype, error in errors.items():
            _print(f"  {dtype}: largest error {error.max_abs_error:.1e}, outputs up to {error.max_abs_output:.2f}")


@dataclass(frozen=True)
class Reproduce:
    """Train the paper's two models and score them in and out of distribution, beside the references."""

    preset: Literal["smoke", "quick", "paper"] = "quick"
    """paper: the paper's settings, hours. quick: smaller tasks and models, minutes. smoke: to see that it runs."""
    config: Path | None = None
    """A TOML file of changes to the preset."""
    seed: int | None = None
    """Draws the teacher, the initial parameters and the data; the configuration's (0) where it is not given."""
    json: bool = False
    """Print JSON, with the configurations and every score."""

    def run(self) -> None:
        from recombine.config_file import config_as_dict, read_toml
        from recombine.preset import reproduce_configs

        configs = reproduce_configs(self.preset, read_toml(self.config) if self.config else {}, self.seed)
        task = configs["transformer"].task
        if not task.support.held_out:
            _note(f"support {task.support.name} holds nothing out: there will be no ood score")
        from recombine.experiment.run import reference_scores, run
        from recombine.report.progress import ProgressDisplay
        from recombine.report.tables import print_scores

        models = {}
        for kind, config in configs.items():
            with ProgressDisplay(kind, config.optimizer.num_steps) as display:
                for progress in run(config):
                    display.update(progress.step, f"loss {progress.loss:.4f}")
                    if progress.scores:
                        models[kind] = progress.scores
        _note("scoring the references")
        references = reference_scores(configs["transformer"])  # the tasks are the same for both models
        if self.json:
            _print_json(
                {
                    "preset": self.preset,
                    "configs": {kind: config_as_dict(config) for kind, config in configs.items()},
                    "models": {name: {split: s._asdict() for split, s in row.items()} for name, row in models.items()},
                    "references": {
                        name: {split: s._asdict() for split, s in row.items()} for name, row in references.items()
                    },
                }
            )
            return
        steps = " and ".join(sorted({f"{config.optimizer.num_steps:,}" for config in configs.values()}))
        title = (
            f"Trained on {task.support.name} for {steps} steps (N = {task.episode_length}, d = {task.input_dim}, "
            f"h = {task.hidden_dim}, seed {configs['transformer'].seed})"
        )
        print_scores(title, models, references)


class UsageError(Exception):
    """The arguments do not parse."""


Command = (
    Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Task, tyro.conf.subcommand("task")]
    | Annotated[Construct, tyro.conf.subcommand("construct")]
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0 ok, 1 failed, 2 usage, 130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments in (["--version"], ["-V"]):
        _print(f"recombine {__version__}")
        return 0
    try:
        _parse(arguments).run()
    except (UsageError, InputError) as error:
        _complain(str(error))
        return 2
    except KeyboardInterrupt:
        _complain("interrupted")
        return 130
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, MemoryError, ArithmeticError) as error:
        _complain(str(error) or type(error).__name__)
        return 1
    except RuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):  # JAX's word for no memory left; anything else is a defect of ours
            raise
        _complain(f"out of memory: smaller sizes are needed ({str(error).splitlines()[0]})")
        return 1
    return 0


def _parse(arguments: list[str]) -> Reproduce | Task | Construct:
    """The command that the arguments name, or an InputError in one line."""
    markers = (tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
    description = "Can an in-context learner recombine what it knows? (--version prints the version.)"
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(Command, prog="recombine", description=description, args=arguments, config=markers)  # pyright: ignore
    except SystemExit as leaving:
        if not leaving.code:  # --help
            raise
    raise UsageError(_one_line(complaint.getvalue()))


def _one_line(box: str) -> str:
    """tyro's framed complaint as one line, without the frame and the pointer to the help."""
    box = re.sub(
        r"Error parsing (\S+): invalid literal for int\(\) with base 10: (.*?)\s*│", r"\1 = \2: an integer │", box
    )
    lines = [re.sub(r"^[│╭╰]\s?|\s*[│╮╯]$", "", line).strip() for line in box.splitlines()[1:-1]]
    parts = [" ".join(part.split()) for part in re.split(r"─{3,}", " ".join(lines))]
    said = [part for part in parts if part and not part.startswith(("For full helptext", "Argument helptext"))]
    return f"{'; '.join(said)} (see recombine --help)"


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _print_json(value: Any) -> None:
    text = json.dumps(_without_nan(value), indent=2, ensure_ascii=False, allow_nan=False)
    _print(re.sub(r"\[[\d\s,]+\]", lambda row: " ".join(row[0].split()).replace("[ ", "[").replace(" ]", "]"), text))


def _without_nan(value: Any) -> Any:
    """JSON has no word for what is not a finite number, but null."""
    match value:
        case dict():
            return {name: _without_nan(entry) for name, entry in value.items()}
        case float() if not isfinite(value):
            return None
        case _:
            return value


def _complain(text: str) -> None:
    sys.stderr.write(f"recombine: {' '.join(text.split())}\n")
