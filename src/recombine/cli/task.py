"""`recombine task`: shows and designs supports, and samples episodes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from recombine import paper
from recombine.checks import LARGEST_COUNT, check_seed, check_size
from recombine.cli.arguments import OptionalClass, OptionalPath, name_task, plain_help
from recombine.errors import InputError
from recombine.files import check_output
from recombine.support.parse import MOST_MODULES, parse_support
from recombine.support.split import Sampled
from recombine.terminal.output import note, print_json, print_line


@dataclass(frozen=True)
@plain_help
class Show:
    """Show a support: its masks, the held-out ones, and whether it is connected."""

    support: Annotated[str, tyro.conf.arg(metavar="SUPPORT")] = paper.DEFAULT_SUPPORT
    """connected, disconnected, connected+, K-hot, K-hot:M, masks such as 110,011, or a file of masks."""
    held_out: Annotated[str | None, tyro.conf.arg(metavar="MASKS")] = None
    """Masks to hold out. Default: all other masks with as many active modules."""
    figure: OptionalPath = None
    """Draw the graph of the modules to this PNG or SVG file."""
    json: bool = False
    """Print JSON, which --support reads back from a file."""

    def run(self) -> None:
        from recombine.terminal.tables import print_support

        support = parse_support(self.support, self.held_out)
        if self.figure is not None:
            check_output("figure", self.figure, (".png", ".svg"))
            from recombine.figure.save import save_figure
            from recombine.figure.support_graph import draw_support

            save_figure(draw_support(support), self.figure)
            note(f"drawn to {self.figure}")
        if self.json:
            print_json(support.as_dict())
        else:
            print_support(support)


@dataclass(frozen=True)
@plain_help
class Design:
    """Draw a random support of a given size and connectivity."""

    size: int
    """The number of masks."""
    modules: int = paper.NUM_MODULES
    """The number of modules M."""
    k: int = 2
    """The number of active modules in each mask."""
    disconnected: bool = False
    """Make two or more groups of modules that no mask connects."""
    seed: int = 0
    """Determines the masks."""
    json: bool = False
    """Print JSON, which --support reads back from a file."""

    def run(self) -> None:
        from recombine.support.random_support import sample_support
        from recombine.terminal.tables import print_support

        check_seed("seed", self.seed)
        check_size("modules", self.modules, most=MOST_MODULES)
        support = sample_support(self.modules, self.k, self.size, not self.disconnected, self.seed)
        if self.json:
            print_json(support.as_dict())
        else:
            print_support(support)


@dataclass(frozen=True)
@plain_help
class Sample:
    """Sample episodes to an .npz file of plain arrays."""

    out: Path
    """The .npz file to write."""
    support: Annotated[str, tyro.conf.arg(metavar="SUPPORT")] = paper.DEFAULT_SUPPORT
    """connected, disconnected, connected+, K-hot, K-hot:M, masks such as 110,011, or a file of masks."""
    held_out: Annotated[str | None, tyro.conf.arg(metavar="MASKS")] = None
    """Masks to hold out. Default: all other masks with as many active modules."""
    split: Sampled = "in_dist"
    """ood: held-out masks; control: a fresh teacher per episode; control_modules: fresh modules, the same readout;
    novel: held-out tasks with many queries each; all: every split that a model is scored on."""
    episodes: int = 1000
    """Number of episodes of each split. novel has 200 contexts, each with 40 queries or more."""
    length: int = 32
    """N: the number of context pairs, plus one for the query."""
    input_dim: int = paper.INPUT_DIM
    """d: size of an input x."""
    hidden_dim: int = paper.HIDDEN_DIM
    """h: number of the teacher's hidden units."""
    task: OptionalClass = None
    """package.module:Class, your own task. Default: the paper's task."""
    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FIELD=VALUE ...")] = ()
    """Variations of the task, such as task.activation=even task.label_noise=0.1."""
    seed: int = 0
    """Determines the teacher and the episodes."""

    def run(self) -> None:
        from recombine.config.schema import Config
        from recombine.config.task import TaskConfig
        from recombine.config.toml import override, parse_changes

        check_output("out", self.out, (".npz",))
        check_size("episodes", self.episodes, most=LARGEST_COUNT)
        check_size("length", self.length, least=2)
        check_seed("seed", self.seed)
        support = parse_support(self.support, self.held_out)
        support.masks_of("ood" if self.split == "novel" else self.split)  # refuses `ood` if no mask is held out
        changes = parse_changes(self.set)
        for name in changes:
            if name != "task":
                raise InputError("set", name, "episodes depend only on fields of the task, such as task.activation")
        config = Config(task=TaskConfig(support, self.input_dim, self.hidden_dim, self.length))
        config = name_task(config, self.task)  # before the changes: they may set its options
        task = name_task(override(config, changes), self.task).task
        from recombine.run.machine import check_memory

        check_memory()
        if self.task is not None:
            from recombine.task.custom_task import check_custom_task, import_task

            import_task(self.task)
            check_custom_task(task)
        from recombine.exam.array_archive import save_arrays
        from recombine.exam.episode_file import identify, sample_file

        arrays = sample_file(identify(task, self.split, self.episodes, self.seed))
        save_arrays(self.out, arrays)
        print_line(f"{self.out}: {', '.join(f'{name} {array.shape}' for name, array in arrays.items() if array.shape)}")
        print_line(f"digest {arrays['digest']}")


@dataclass(frozen=True)
@plain_help
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
