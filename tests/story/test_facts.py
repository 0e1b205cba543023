"""The stored facts of the demo's story are those of its runs. Runs that cannot be compared are refused."""

from base64 import b64decode
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from recombine.config.model import HypertransformerConfig
from recombine.config.preset import preset_config
from recombine.config.toml import override
from recombine.errors import InputError
from recombine.measure.latent.interventions import LatentInterventions
from recombine.run.load import TrainedModel, load_model
from recombine.storage.reader import last_row, read_scorecard
from recombine.storage.source import open_run
from recombine.story.pack import demo_paths, demo_story
from recombine.story.pair import story_pair
from recombine.story.static_page import write_static_page
from recombine.support.masks import format_mask
from recombine.task.teacher import config_teacher


def test_the_stored_facts_are_those_of_the_runs() -> None:
    """The runs' own rows and scorecards, measured by other code at other times, have the same scores."""
    facts = demo_story().facts
    for path, answers in zip(demo_paths(), ("transformer", "inferred"), strict=True):
        row, scores = last_row(open_run(path)), facts.scores[answers]
        assert (scores.in_dist, scores.ood) == pytest.approx((row.in_dist.r2, row.ood.r2), abs=1e-6)
        masks = {mask: one.r2 for split in (row.in_dist, row.ood) for mask, one in (split.masks or {}).items()}
        assert scores.masks == pytest.approx(masks, abs=1e-6)
    interventions = read_scorecard(open_run(demo_paths()[1])).value.interventions
    assert isinstance(interventions, LatentInterventions)
    assert facts.scores["true"].ood == pytest.approx(interventions.ood.true, abs=1e-6)
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
        "both learn from one teacher": second._replace(config=replace(second.config, seed=1)),
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
