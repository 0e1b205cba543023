"""The configuration of the tasks. Each field that the paper leaves open is explained in docs/decisions.md."""

from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from recombine import paper
from recombine.checks import check_bool, check_choice, check_class, check_number, check_options, check_size
from recombine.errors import InputError
from recombine.support.parse import parse_support
from recombine.support.support import Support, paper_support

Activation = Literal["gelu", "relu", "even"]
InputDistribution = Literal["uniform", "normal", "sphere"]
HYPERNETWORK = "hypernetwork"  # the paper's teacher
MOST_OUTPUTS = 64  # the novel part keeps the labels of 4,096 inputs under 512 tasks: a gigabyte with 64 outputs
VARIATIONS = (
    "output_dim",
    "activation",
    "num_layers",
    "weight_scale",
    "unit_norm",
    "label_noise",
    "input_distribution",
    "kind",
    "options",
)


@dataclass(frozen=True)
class TaskConfig:
    """The tasks. The number of modules M is the length of the support's masks."""

    support: Support = field(default_factory=lambda: paper_support(paper.DEFAULT_SUPPORT))  # trained masks, or a name
    input_dim: int = paper.INPUT_DIM  # d, the size of an input x
    hidden_dim: int = paper.HIDDEN_DIM  # h, the hidden units of a task's network
    episode_length: int = 32  # N, the number of pairs in an episode, query included
    # Variations of the paper's task.
    output_dim: int = 1  # o, the size of a label y; with 1 a label is a number, otherwise a vector
    activation: Activation = "gelu"  # the teacher's activation; even means gelu(u) + gelu(−u)
    num_layers: int = 1  # hidden layers of the teacher's network, all of them made of modules
    weight_scale: float = 1.0  # the operator norm of every layer's weights; without unit_norm, a factor of them
    unit_norm: bool = True  # divide the weights by their operator norm; the hypernetwork of Appendix A does not
    label_noise: float = 0.0  # standard deviation of the noise on the labels of the context
    input_distribution: InputDistribution = "uniform"  # distribution of each input entry; mean 0, variance 1
    kind: str = HYPERNETWORK  # the paper's teacher, or your own class, package.module:Class
    options: tuple[tuple[str, Any], ...] = ()  # options of your own class

    def __post_init__(self) -> None:
        if not isinstance(self.support, Support):
            object.__setattr__(self, "support", parse_support(self.support))
        check_size("task.input_dim", self.input_dim)
        check_size("task.hidden_dim", self.hidden_dim)
        check_size("task.episode_length", self.episode_length, least=2)  # a query, and at least one context pair

        check_size("task.output_dim", self.output_dim, most=MOST_OUTPUTS)
        check_choice("task.activation", self.activation, *get_args(Activation))
        check_size("task.num_layers", self.num_layers, most=64)
        check_number("task.weight_scale", self.weight_scale, above=0.0)
        check_bool("task.unit_norm", self.unit_norm)
        check_number("task.label_noise", self.label_noise, least=0.0)
        check_choice("task.input_distribution", self.input_distribution, *get_args(InputDistribution))
        if self.kind != HYPERNETWORK:
            check_class("task.kind", self.kind, HYPERNETWORK)
            for name in ("activation", "num_layers", "weight_scale", "unit_norm"):
                if name in self.variation:
                    wanted = f"is for the paper's teacher; {self.kind} labels inputs as it likes"
                    raise InputError(f"task.{name}", getattr(self, name), wanted)
        elif self.options:
            raise InputError("task.options", dict(self.options), "are for a class of your own: --task")
        object.__setattr__(self, "options", check_options("task.options", self.options))

    @property
    def num_modules(self) -> int:
        return self.support.num_modules

    @property
    def label_shape(self) -> tuple[int, ...]:
        """The shape of a label: () if it is a number, otherwise (o,)."""
        return () if self.output_dim == 1 else (self.output_dim,)

    @property
    def variation(self) -> dict[str, Any]:
        """The fields in which the task differs from the paper's, besides its support and its sizes."""
        defaults = {f.name: f.default for f in fields(self) if f.name in VARIATIONS}
        found = {name: getattr(self, name) for name, default in defaults.items() if getattr(self, name) != default}
        return found | ({"options": dict(self.options)} if self.options else {})

    @property
    def described(self) -> str:
        """The sizes, and how the task differs from the paper's: 'N = 16, d = 8, h = 8, activation = even'."""
        sizes = {"N": self.episode_length, "d": self.input_dim, "h": self.hidden_dim}
        return ", ".join(f"{name.replace('_', ' ')} = {value}" for name, value in (sizes | self.variation).items())

    @property
    def is_paper(self) -> bool:
        return not self.variation
