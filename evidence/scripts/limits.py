"""Measures where explicit inference fails: `python evidence/scripts/limits.py`.

Writes "limits" into measured.json. The stored hypertransformers of the paper's settings, trained on `connected+`, are
tested on held-out masks with fewer and more examples than in training, and with noise on the labels of the context.
Nothing is trained. The oracle, which knows the teacher, shows how much the context determines. Takes some minutes.
"""

from statistics import fmean

import jax
import jax.numpy as jnp
from records import H, keep, read_rows, trained_runs

from recombine.config.schema import Config
from recombine.config.toml import override
from recombine.measure.evaluated import EvaluatedModel
from recombine.measure.latent.explicit_inference import infer_explicitly
from recombine.measure.r2 import score
from recombine.measure.reference.oracle import oracle
from recombine.model.interface import Model
from recombine.run.load import load_model
from recombine.study.wording import number
from recombine.terminal.markdown import table

STUDY, EPISODES, STEPS = "paper", 1_000, 10
LENGTHS = (4, 6, 8, 12, 16, 32, 64)
NOISE = (0.01, 0.03, 0.1, 0.3)


def main() -> None:
    for source in trained_runs(STUDY, H):
        config, model, _ = load_model(source.path)
        length = config.task.episode_length
        tests = [(n, 0.0) for n in LENGTHS] + [(length, noise) for noise in NOISE]
        found = [{"length": n, "noise": noise} | tested(config, model, n, noise) for n, noise in tests]
        keep("limits", [{"study": STUDY, "model": H, "seed": config.seed, "tests": found}])


def tested(config: Config, model: Model, length: int, noise: float) -> dict[str, float]:
    """Held-out R² as inferred, after explicit steps from that latent and from zero, and that of the oracle; and the
    standard deviation of the labels, to compare with the noise."""
    task = {"episode_length": length, "label_noise": noise}
    evaluated = EvaluatedModel(override(config, {"task": task, "measure": {"episodes": EPISODES}}), model)
    episodes, start = evaluated.episodes["ood"], evaluated.outputs["ood"].latent
    assert evaluated.latent_model is not None
    assert start is not None
    own, zero = (
        infer_explicitly(evaluated.latent_model, latent, episodes, STEPS).y for latent in (start, jnp.zeros_like(start))
    )
    known = jax.lax.map(lambda episode: oracle(evaluated.teacher, episode), episodes, batch_size=50)
    predictions = {"inferred": own[:, 0], "own_3": own[:, 3], "own_10": own[:, 10], "zero_10": zero[:, 10]}
    scores = {name: score(y, episodes).r2 for name, y in (predictions | {"oracle": known}).items()}
    return scores | {"labels": float(jnp.std(episodes.query_y))}


def limits_table() -> str:
    """Means over the seeds, a row for each number of examples and each level of noise."""
    runs = read_rows("limits")
    rows = []
    for tests in zip(*(run["tests"] for run in runs), strict=True):
        first = tests[0]
        noise = f"{fmean(one['noise'] / one['labels'] for one in tests):.0%}" if first["noise"] else "none"
        names = ("inferred", "own_3", "own_10", "zero_10", "oracle")
        cells = (number(fmean(one[name] for one in tests)) for name in names)
        rows.append((str(first["length"] - 1), noise, *cells))
    steps = ("0 steps", "3 steps", "10 steps", "from zero, 10 steps")
    return table(("examples", "noise on the labels", *steps, "oracle"), rows, left=2)


if __name__ == "__main__":
    main()
