"""Measures what the novel part costs, relative to the rest of measuring: `python evidence/scripts/novel_cost.py [RUN]`.

The parts of a snapshot, and of a scorecard, are timed in turns: each round times every part once, so that other work on
the machine slows all of them alike. The first round also compiles and is left out. The medians are printed as JSON.
"""

import json
import sys
from pathlib import Path
from statistics import median
from time import monotonic

import jax

from recombine.measure.evaluated import EvaluatedModel
from recombine.measure.novel import snapshot_tasks
from recombine.measure.scorecard import MEASURES
from recombine.measure.snapshot import measure_parts, snapshot_episodes
from recombine.run.load import load_model
from recombine.task.teacher import config_teacher

RUN = Path(__file__).parents[1] / "paper/seed0.zip/hypertransformer-connected+-seed0"
ROUNDS = 3


def main(path: Path) -> None:
    config, model, _ = load_model(path)
    teacher = config_teacher(config)
    started = monotonic()
    jax.block_until_ready(snapshot_tasks(config, teacher))
    once = monotonic() - started
    on = snapshot_episodes(config, teacher)
    snapshot: dict[str, list[float]] = {}
    scorecard: dict[str, list[float]] = {}
    for _ in range(ROUNDS + 1):
        started = monotonic()
        for name, _ in measure_parts(config, model, on):  # scores are numbers, so a part is done when it is yielded
            snapshot.setdefault(name, []).append(monotonic() - started)
            started = monotonic()
    for _ in range(2):
        evaluated = EvaluatedModel(config, model)
        for name, measure in MEASURES.items():
            started = monotonic()
            measure(evaluated)
            scorecard.setdefault(name, []).append(monotonic() - started)
    found = {"run": path.name, "prepared once, and compiled": round(once, 2)}
    for name, times in (("snapshot", snapshot), ("scorecard", scorecard)):
        seconds = {part: round(median(rounds[1:]), 3) for part, rounds in times.items()}
        rest = sum(value for part, value in seconds.items() if part != "novel")
        found[name] = {"seconds": seconds, "novel, as a share of the rest": round(seconds["novel"] / rest, 3)}
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RUN)
