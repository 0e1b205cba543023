"""The stored scores of the references: computed once, and completed if some are missing."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from recombine.config.preset import preset_config
from recombine.config.schema import Config
from recombine.record.reference import REFERENCE_NAMES
from recombine.storage import reference_files as stored


@pytest.fixture
def config() -> Config:
    config = preset_config("smoke", "transformer")
    return replace(config, measure=replace(config.measure, episodes=8))


def test_what_is_missing_is_added(tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """The missing scores are computed, and the others are kept."""
    assert stored.missing_references(tmp_path, config) == list(REFERENCE_NAMES)
    scores = stored.store_references(tmp_path, config)
    assert tuple(scores) == REFERENCE_NAMES
    assert stored.missing_references(tmp_path, config) == []
    path = tmp_path / "references" / stored.reference_file(config)
    older = json.loads(path.read_text())
    del older["scores"]["trained_task"], older["sources"], older["sha256"]  # of before digests were kept
    older["scores"]["ridge"]["ood"]["r2"] = -7.0
    path.write_text(json.dumps(older))
    assert stored.missing_references(tmp_path, config) == ["trained_task"]
    again = stored.store_references(tmp_path, config)
    assert tuple(again) == REFERENCE_NAMES
    assert again["trained_task"] == scores["trained_task"]
    assert again["ridge"].r2("ood") == -7.0
    monkeypatch.setattr("recombine.measure.reference.score.reference_scores", None)  # nothing is left to compute
    assert stored.store_references(tmp_path, config) == again
