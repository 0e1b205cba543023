"""The story's numbers: its facts, and the page's own inference against JAX."""

import json
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from recombine.config.model import HypertransformerConfig, TrunkConfig
from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.config.toml import override
from recombine.errors import InputError
from recombine.measure.latent.explicit_inference import improve_latent
from recombine.measure.latent.interventions import LatentInterventions
from recombine.model.build import build_model
from recombine.model.interface import LatentModel, Model
from recombine.model.weights import named_arrays
from recombine.record.codec import encode
from recombine.run.load import TrainedModel, load_model
from recombine.storage.reader import last_row, read_scorecard
from recombine.storage.source import open_run
from recombine.story.facts import MOST_STEPS
from recombine.story.pack import demo_paths, demo_story, pack_model
from recombine.story.pair import packed_floats, story_pair
from recombine.story.static_page import HERE, SCRIPTS, write_static_page
from recombine.support.masks import format_mask
from recombine.task.teacher import Teacher, config_teacher
from tests.page.browser import CHROMIUM, Browser
from tests.serve.server import demo_run


def test_the_stored_facts_are_those_of_the_runs() -> None:
    """The runs' own rows and scorecards, measured by other code at other times, have the same scores."""
    facts = demo_story().facts
    for path, answers in zip(demo_paths(), ("transformer", "inferred"), strict=True):
        row, scores = last_row(open_run(path)), facts.scores[answers]
        assert (scores.in_dist, scores.ood) == pytest.approx((row.in_dist.r2, row.ood.r2), abs=1e-6)
        masks = {mask: one.r2 for split in (row.in_dist, row.ood) for mask, one in (split.masks or {}).items()}
        assert scores.masks == pytest.approx(masks, abs=1e-6)
    scorecard = read_scorecard(open_run(demo_paths()[1])).value
    assert isinstance(scorecard.interventions, LatentInterventions)
    assert facts.scores["true"].ood == pytest.approx(scorecard.interventions.ood.true, abs=1e-6)
    novel = scorecard.novel.ood.masks
    by_mask = {mask: 1 - one.novel_error / one.novel for mask, one in novel.items()}
    assert facts.scores["inferred"].novel_masks == pytest.approx(by_mask, abs=1e-6)
    assert facts.novel_tasks == sum(one.contexts for one in novel.values())
    explicit = scorecard.explicit_inference
    for start, steps in facts.explicit.items():
        assert len(steps) == MOST_STEPS + 1
        measured = getattr(explicit, start)  # on the first of the same tasks
        assert steps[explicit.steps].ood == pytest.approx(measured.ood.r2, abs=0.01)
        assert steps[explicit.steps].novel == pytest.approx(measured.novel.r2, abs=1e-3)
    config = load_model(demo_paths()[0]).config
    teacher, support = config_teacher(config), config.task.support
    for stored, array in ((facts.theta, teacher.theta), (facts.a, teacher.a)):
        found = np.frombuffer(b64decode(stored), "<f4").reshape(array.shape)
        np.testing.assert_allclose(found, array, atol=1e-6)  # the last bits depend on the machine
    assert (facts.trained, facts.held_out) == tuple(
        tuple(map(format_mask, masks)) for masks in (support.masks, support.held_out)
    )


def test_what_cannot_be_compared_is_refused() -> None:
    first, second = (
        TrainedModel(preset_config("smoke", kind), None, 0) for kind in ("transformer", "hypertransformer")
    )
    assert story_pair([second, first]) == (first, second)
    assert isinstance(second.config.model, HypertransformerConfig)
    others = {
        "one transformer and one hypertransformer": first,
        "both need the same teacher": second._replace(config=replace(second.config, seed=1)),
        "must be the same for both runs": second._replace(config=override(second.config, {"task": {"input_dim": 3}})),
    }
    for fields in ({"unit_norm": True}, {"scaled_forward": True}, {"position_buckets": "one_directional"}):
        name = next(iter(fields))
        config = replace(second.config, model=replace(second.config.model, **fields))
        others[f"model.{name}"] = second._replace(config=config)
    config = replace(second.config, model=replace(second.config.model, literal_input=True))
    others["runs = .*sees the query label"] = second._replace(config=config)
    for message, other in others.items():
        with pytest.raises(InputError, match=message):
            story_pair([first, other])


def test_a_page_that_would_be_too_large(tmp_path: Path) -> None:
    story = demo_story()
    large = msgspec.structs.replace(story.models[0], weights=story.models[0].weights * 2)
    with pytest.raises(InputError, match="at most 2 MB"):
        write_static_page(tmp_path / "page.html", msgspec.structs.replace(story, models=(large, story.models[1])))
    assert list(tmp_path.iterdir()) == []


LENGTHS = (3, 31, 47)  # context lengths, each compiled once by JAX
NUM_QUERIES = 3
SCENES = 30  # of each trained model
FEW = 4  # of each model with other options, at one length
STEPS = 3
TOLERANCE = 1e-3

# What the paper's models do not have. Initial weights are as good as trained ones.
OPTIONS: list[dict[str, Any]] = [
    {"causal": True, "position_bias": "shared", "num_layers": 3, "num_heads": 2},
    {"position_bias": "none", "final_norm": False, "num_layers": 1},
    {"scale_scores": False, "num_layers": 3, "embed_dim": 10, "num_heads": 5},
]


class Tried(NamedTuple):
    """A model, its teacher, and its name."""

    name: str
    config: Config
    model: Model
    teacher: Teacher


def trained() -> Iterator[Tried]:
    for kind in ("transformer", "hypertransformer"):
        for name in (
            f"paper/{kind}-connected+-seed0",
            f"paper/{kind}-disconnected-seed0",
            f"quick/{kind}-connected-seed0",
        ):
            config, model, _ = load_model(demo_run(name))
            yield Tried(name, config, model, config_teacher(config))


def unusual() -> Iterator[Tried]:
    for kind in ("transformer", "hypertransformer"):
        config = preset_config("smoke", kind)
        for number, options in enumerate(OPTIONS):
            assert isinstance(config.model, TrunkConfig)
            model = replace(config.model, **({"base_weights": True} if kind == "hypertransformer" else {}), **options)
            other = replace(config, model=model)
            built = build_model(other, key=jax.random.key(number))
            yield Tried(f"{kind} {number}", other, jax.tree.map(rounded, built), config_teacher(other))


def rounded(leaf: Any) -> Any:
    """To half precision, as in the page: an untrained model has large outputs, and so large rounding errors."""
    return leaf.astype(jnp.float16).astype(leaf.dtype) if eqx.is_inexact_array(leaf) else leaf


@eqx.filter_jit
def computed(model: Model, teacher: Teacher, z: Any, x: Any, queries: Any) -> dict[str, Any]:
    """In JAX: the labels, the predictions, the latent, and the predictions after explicit inference."""
    y = teacher.label(z, x)
    output = jax.vmap(lambda query: model(x, y, query))(queries)
    found = {"labels": y, "y": output.y}
    if isinstance(model, LatentModel):
        guess = output.trace.latent[0]
        found |= {"latent": guess}
        for name, start in (("guess", guess), ("zero", jnp.zeros_like(guess))):
            latent = improve_latent(model, start, x, y, STEPS)[-1]
            found[name] = jax.vmap(lambda query, latent=latent: model.execute(latent, query))(queries)
    return found


SCRIPT = """(({tried, scenes, steps}) => {
  const { network, teacher: teachers, inference } = explorable;
  const model = network.unpack(tried.model), teacher = teachers.unpack(tried.teacher), d = teacher.inputs;
  return scenes.map((scene) => {
    const x = network.floats(scene.x), queries = network.floats(scene.queries);
    const y = teachers.label(teacher, scene.z, x), read = network.readContext(model, { x, y });
    if (model.kind === "transformer") {
      const each = Array.from({ length: queries.length / d }, (_, i) => queries.subarray(i * d, (i + 1) * d));
      return { labels: [...y], y: each.map((query) => network.predict(model, read, query).y) };
    }
    const guess = network.infer(model, read).z, context = network.project(model, x);
    const at = network.project(model, queries);
    const after = (start) => [...network.execute(model, at, inference.steps(model, context, y, start, steps)[steps])];
    return { labels: [...y], y: [...network.execute(model, at, guess)], latent: [...guess], guess: after(guess),
      zero: after(new Float64Array(guess.length)) };
  });
})"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A page with the story's scripts, and nothing else."""
    page = tmp_path_factory.mktemp("engine") / "engine.html"
    scripts = "".join(f"<script>{(HERE / name).read_text(encoding='utf-8')}</script>" for name in SCRIPTS)
    page.write_text(f"<!doctype html><html data-ready=yes><meta charset=utf-8>{scripts}", encoding="utf-8")
    with Browser() as browser:
        browser.open(page)
        yield browser


def sample_scenes(
    tried: Tried, lengths: tuple[int, ...], count: int, random: np.random.Generator
) -> list[dict[str, Any]]:
    """Random tasks of one to all modules, with random contexts."""
    modules, _, inputs = tried.teacher.theta.shape
    scenes = []
    for number in range(count):
        active = random.permutation(modules) < random.integers(1, modules + 1)
        weights = active * random.exponential(size=modules)
        z = 0.5 * (weights / weights.sum() + active)
        x, queries = (
            random.uniform(-(3**0.5), 3**0.5, (rows, inputs)).astype(np.float32)
            for rows in (lengths[number % len(lengths)], NUM_QUERIES)
        )
        scenes.append({"z": z.astype(np.float32), "x": x, "queries": queries})
    return scenes


def differences(engine: Browser, tried: Tried, scenes: list[dict[str, Any]]) -> dict[str, list[float]]:
    teacher, arrays = tried.teacher, named_arrays(tried.model)
    packed = {
        "model": json.loads(encode(pack_model(tried.config, arrays, 0))),
        "teacher": {"shape": teacher.theta.shape, "theta": packed_floats(teacher.theta), "a": packed_floats(teacher.a)},
    }
    sent = [
        {"z": scene["z"].tolist(), "x": packed_floats(scene["x"]), "queries": packed_floats(scene["queries"])}
        for scene in scenes
    ]
    answers = engine.evaluate(f"{SCRIPT}({json.dumps({'tried': packed, 'scenes': sent, 'steps': STEPS})})")
    found: dict[str, list[float]] = {}
    for scene, answer in zip(scenes, answers, strict=True):
        for name, value in computed(tried.model, teacher, *(jnp.asarray(scene[key]) for key in scene)).items():
            difference = float(np.abs(np.asarray(answer[name]) - np.asarray(value)).max())
            found.setdefault(name, []).append(difference)
    return found


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, a package of make system-deps")
def test_the_page_computes_what_jax_computes(engine: Browser) -> None:
    random, worst, count = np.random.default_rng(0), {}, 0
    everything = [(tried, LENGTHS, SCENES) for tried in trained()] + [(tried, (9,), FEW) for tried in unusual()]
    for tried, lengths, many in everything:
        for name, values in differences(engine, tried, sample_scenes(tried, lengths, many, random)).items():
            assert np.isfinite(values).all()
            worst[tried.name, name] = max(values)
        count += many
    assert count >= 200
    assert {key: value for key, value in worst.items() if value > TOLERANCE} == {}
