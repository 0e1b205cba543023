"""`recombine construct`: the explicit construction of the paper's Appendix A."""

from dataclasses import dataclass

from recombine import paper
from recombine.checks import MOST_NUMBERS, check_seed, check_size
from recombine.cli.arguments import plain_help
from recombine.errors import InputError
from recombine.terminal.output import print_json, print_line


@dataclass(frozen=True)
@plain_help
class Construct:
    """Appendix A: build a hypernetwork as a linear transformer, and report its error."""

    modules: int = paper.NUM_MODULES
    """M: number of modules."""
    input_dim: int = paper.INPUT_DIM
    """d: size of an input."""
    hidden_dim: int = paper.HIDDEN_DIM
    """h: number of hidden units."""
    output_dim: int = 1
    """o: size of an output."""
    trials: int = 1000
    """Number of random hypernetworks, each with its own input and latent."""
    seed: int = 0
    """Seed of the random hypernetworks."""
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        for name in ("modules", "input_dim", "hidden_dim", "output_dim"):
            check_size(name, getattr(self, name), most=1024)
        check_size("trials", self.trials)
        check_seed("seed", self.seed)
        # The weights of a block, for all trials at once.
        width = self.modules + self.input_dim + self.hidden_dim + self.output_dim
        numbers = self.trials * 2 * self.modules * width * self.hidden_dim
        if numbers > MOST_NUMBERS:
            raise InputError("trials", self.trials, f"{numbers:,} weights at these sizes; at most {MOST_NUMBERS:,}")
        from recombine.run.machine import check_memory

        check_memory()
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
            print_json(result)
            return
        print_line(
            f"{self.trials} random hypernetworks (M={sizes[0]}, d={sizes[1]}, h={sizes[2]}, o={sizes[3]}), each as one "
            f"block of {self.modules} linear-attention heads"
        )
        for dtype, error in errors.items():
            print_line(f"  {dtype}: largest error {error.max_abs_error:.1e}, outputs up to {error.max_abs_output:.2f}")
