"""`recombine bench`: compares the speed of our training with other libraries."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from recombine.checks import check_choice, check_size
from recombine.cli.arguments import OptionalInt, OptionalPath, plain_help
from recombine.config.model import MODEL_CONFIGS, ModelKind
from recombine.config.preset import Preset, preset_config
from recombine.config.schema import Config
from recombine.config.toml import override
from recombine.errors import InputError
from recombine.files import check_output, replacing
from recombine.terminal.output import note, print_json

if TYPE_CHECKING:
    from recombine.bench.race import Report
    from recombine.bench.result import Benchmark, ColdStart, Comparison, Scaling

LONGEST = 4096
MOST_REPEATS = 1000
MOST_STEPS = 1024  # in one dispatch of the training loop


@dataclass(frozen=True)
@plain_help
class Bench:
    """Measure the speed (episodes per second) and memory of a training step, ours and that of other libraries."""

    model: Literal["transformer", "hypertransformer", "both"] = "both"
    """The model to train: one of the two, or both."""
    preset: Preset = "paper"
    """paper: Table 3's settings. The smaller presets only show that the benchmark runs."""
    lengths: tuple[int, ...] = (32, 64, 128)
    """Episode lengths N to compare at. Without values (--lengths alone): no comparison."""
    contenders: tuple[str, ...] = ()
    """plain, fast, fast_sharded, fast_single, fast_pair; explicit_1 and explicit_3, the hypertransformer with that many
    steps of explicit inference; and the peers flax_linen, torch_eager, torch_compiled, gpt2. Default: all of them. A
    peer that is not installed is reported as missing."""
    steps: int = 10
    """Steps in a turn."""
    repeats: int = 5
    """Turns of each contender."""
    threads: OptionalInt = None
    """Total number of threads of each contender. Default: the number of cores."""
    scaling: bool = False
    """Also measure how the cost of the fast path grows with N, with d and with the layers."""
    figure: OptionalPath = None
    """Draw the scaling to this PNG or SVG file."""
    cold_start: bool = False
    """Also time processes from their start to their first step, with an empty and with a filled compilation cache."""
    json: bool = False
    """Print JSON."""
    out: OptionalPath = None
    """Write the JSON to this file as well."""

    def run(self) -> None:
        contenders, threads = self._check()
        from recombine.run.machine import identity, prepare, this_start

        prepare(threads)
        comparisons = self._compare(contenders, threads)
        scaling = self._scaling(threads) if self.scaling else None
        cold_starts = self._cold_starts(threads) if self.cold_start else None
        from recombine.bench.result import Benchmark
        from recombine.record.codec import encode

        result = Benchmark(
            preset=self.preset,
            steps=self.steps,
            repeats=self.repeats,
            threads=threads,
            comparisons=comparisons,
            scaling=scaling,
            cold_starts=cold_starts,
            environment=this_start(0, identity()),  # last: it starts JAX, whose threads would disturb the race
        )
        if self.out is not None:
            with replacing("out", self.out) as temporary:
                temporary.write_text(encode(result, indent=2) + "\n", encoding="utf-8")
            note(f"written to {self.out}")
        if self.figure is not None and scaling is not None:
            from recombine.figure.bench import draw_scaling
            from recombine.figure.save import save_figure

            save_figure(draw_scaling(scaling), self.figure)
            note(f"drawn to {self.figure}")
        if self.json:
            print_json(result)
        else:
            _print(result)

    def _check(self) -> tuple[tuple[str, ...], int]:
        """Refuse bad options; then return the contenders and the number of threads."""
        from recombine.bench.contender import CONTENDERS, EXPLICIT
        from recombine.run.machine import available_cores

        for length in self.lengths:
            check_size("lengths", length, least=2, most=LONGEST)
        for name in self.contenders:
            check_choice("contenders", name, *CONTENDERS)
            if name in EXPLICIT and self.model == "transformer":
                raise InputError("contenders", name, "needs --model hypertransformer, which alone infers explicitly")
        check_size("steps", self.steps, most=MOST_STEPS)
        check_size("repeats", self.repeats, most=MOST_REPEATS)
        if self.threads is not None:
            check_size("threads", self.threads, most=available_cores())
        if not (self.lengths or self.scaling or self.cold_start):
            raise InputError("lengths", self.lengths, "at least one, or --scaling, or --cold-start")
        if self.figure is not None:
            if not self.scaling:
                raise InputError("figure", str(self.figure), "it shows the scaling: add --scaling")
            check_output("figure", self.figure, (".png", ".svg"))
        if self.out is not None:
            check_output("out", self.out, (".json",))
        return tuple(dict.fromkeys(self.contenders or CONTENDERS)), self.threads or available_cores()

    def _configs(self) -> dict[ModelKind, Config]:
        return {kind: preset_config(self.preset, kind) for kind in MODEL_CONFIGS if self.model in (kind, "both")}

    def _compare(self, contenders: tuple[str, ...], threads: int) -> "tuple[Comparison, ...]":
        from recombine.bench.compare import compare
        from recombine.bench.contender import LIMITS, entered_for

        found = []
        for kind, config in self._configs().items():
            names = entered_for(config, contenders)
            num_reports = (len(LIMITS) + len(names)) * (1 + self.repeats)
            for length in dict.fromkeys(self.lengths):
                with _reporting(f"{kind}, N = {length}", num_reports) as report:
                    entered = override(config, {"task": {"episode_length": length}})
                    found.append(compare(entered, names, threads, self.steps, self.repeats, report))
        return tuple(found)

    def _scaling(self, threads: int) -> "tuple[Scaling, ...]":
        from recombine.bench.scaling import measure_scaling, num_points

        found = []
        for kind, config in self._configs().items():
            with _reporting(f"scaling, {kind}", num_points() * (1 + self.repeats)) as report:
                found.append(measure_scaling(config, threads, self.steps, self.repeats, report))
        return tuple(found)

    def _cold_starts(self, threads: int) -> "tuple[ColdStart, ...]":
        from recombine.bench.cold_start import CACHES, measure_cold_start

        found = []
        for kind, config in self._configs().items():
            with _reporting(f"cold start, {kind}", len(CACHES) * self.repeats) as report:
                found.append(measure_cold_start(config, threads, self.repeats, report))
        return tuple(found)


@contextmanager
def _reporting(name: str, total: int) -> "Iterator[Report]":
    """Show progress on stderr. The function that it yields counts one turn per call."""
    from recombine.terminal.progress import ProgressDisplay

    with ProgressDisplay(name, total, unit="turns") as display:
        done = 0

        def report(detail: str) -> None:
            nonlocal done
            done += 1
            display.update(done, detail)

        yield report


def _print(result: "Benchmark") -> None:
    from recombine.terminal.bench_tables import print_cold_starts, print_comparison, print_scaling

    for comparison in result.comparisons:
        print_comparison(comparison)
    if result.scaling is not None:
        print_scaling(result.scaling)
    if result.cold_starts is not None:
        print_cold_starts(result.cold_starts)
