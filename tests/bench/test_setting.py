"""Settings survive JSON, and refuse the options that no peer has."""

from typing import Any

import pytest

from recombine.bench.contender import enter, enter_limits, limit_settings
from recombine.bench.contender_process import Contestant
from recombine.bench.message import Order
from recombine.bench.setting import PeerSetting
from recombine.config.model import ModelKind
from recombine.config.preset import preset_config
from recombine.config.toml import override
from recombine.errors import InputError
from recombine.record.codec import decode, encode

PAPER = preset_config("paper", "hypertransformer")
ENTRIES = [
    *(enter(name, PAPER, threads=2) for name in ("fast_sharded", "gpt2")),
    *enter_limits(limit_settings(PAPER), 2),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_setting_survives_json(entry: Contestant) -> None:
    order = Order(entry.module, entry.setting)
    received = decode(encode(order), Order)
    assert received == order
    assert isinstance(hash(received), int)  # Flax needs the hash of a setting


@pytest.mark.parametrize(
    ("kind", "section", "field", "value"),
    [
        ("transformer", "model", "causal", True),
        ("transformer", "model", "scale_scores", False),
        ("transformer", "model", "final_norm", False),
        ("hypertransformer", "model", "base_weights", True),
        ("hypertransformer", "model", "unit_norm", True),
        ("transformer", "optimizer", "warmup_steps", 5),
        ("transformer", "optimizer", "final_fraction", 0.1),
    ],
)
def test_options_that_no_peer_has(kind: ModelKind, section: str, field: str, value: Any) -> None:
    config = override(preset_config("smoke", kind), {section: {field: value}})
    with pytest.raises(InputError, match=rf"{section}\.{field}"):
        PeerSetting.from_config(config)
