"""`recombine construct`: Appendix A."""

from dataclasses import dataclass

from recombine import paper
from recombine.checks import MOST_NUMBERS, check_seed, check_size
from recombine.errors import InputError
from recombine.terminal.output import print_json, print_line


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
