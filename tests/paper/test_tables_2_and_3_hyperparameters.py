"""Tables 2 and 3: what the `paper` preset is, the number of parameters it gives, and what the optimiser does."""

import re
from pathlib import Path
from typing import Any

import jax
import pytest

from recombine import paper
from recombine.config.preset import preset_config
from recombine.model.build import build_model, count_parameters

DOCS = Path(__file__).parents[2] / "docs"


def test_transformer_column() -> None:
    config = preset_config("paper", "transformer")
    model, optimizer = config.model, config.optimizer
    assert (model.embed_dim, model.num_heads, model.num_layers, model.ffn_factor) == (128, 4, 2, 4)
    assert (optimizer.learning_rate, optimizer.weight_decay, optimizer.clip_norm) == (0.001, 0.1, 1.0)
    assert (optimizer.batch_size, optimizer.num_steps) == (128, 100_000)


def test_hypertransformer_column() -> None:
    config = preset_config("paper", "hypertransformer")
    model: Any = config.model
    optimizer = config.optimizer
    assert (model.embed_dim, model.num_heads, model.num_layers, model.ffn_factor) == (64, 4, 2, 4)
    assert (model.latent_dim, model.hidden_dim) == (6, 32)
    assert (optimizer.learning_rate, optimizer.weight_decay, optimizer.clip_norm) == (0.001, 0.0, 1.0)
    assert (optimizer.batch_size, optimizer.num_steps) == (128, 100_000)


def test_the_tasks() -> None:
    task = preset_config("paper", "transformer").task
    assert (task.num_modules, task.input_dim, task.hidden_dim) == (6, 16, 16)
    assert task.support.name == "connected+"
    assert paper.EVAL_EPISODES == 16_000


def test_the_sweep_has_as_many_configurations_as_the_paper_trained() -> None:
    """4·3·5·1 architectures, 3 learning rates, 2 weight decays: 360; and 3 latent × 2 hidden sizes: 2160."""
    size = 1
    for row in (paper.EMBED_DIM, paper.NUM_HEADS, paper.NUM_LAYERS, paper.FFN_FACTOR, paper.LEARNING_RATE,
                paper.WEIGHT_DECAY, paper.CLIP_NORM, paper.BATCH_SIZE):  # fmt: skip
        assert row.transformer in row.sweep
        assert row.hypertransformer in row.sweep
        size *= len(row.sweep)
    assert size == 360
    assert size * len(paper.LATENT_DIM.sweep) * len(paper.MAIN_HIDDEN_DIM.sweep) == 2160
    assert paper.LATENT_DIM.hypertransformer in paper.LATENT_DIM.sweep
    assert paper.MAIN_HIDDEN_DIM.hypertransformer in paper.MAIN_HIDDEN_DIM.sweep


def trunk_parameters(D: int, layers: int, heads: int, inputs: int) -> int:
    embedding = (inputs + 1) * D + D
    attention = 4 * (D * D + D)
    feedforward = (D * 4 * D + 4 * D) + (4 * D * D + D)
    norms = 2 * 2 * D
    return embedding + layers * (attention + feedforward + norms + 32 * heads) + 2 * D


@pytest.mark.parametrize(
    ("kind", "pinned", "counted"),
    [
        ("transformer", 399_489, trunk_parameters(128, 2, 4, 16) + 128 + 1),
        ("hypertransformer", 104_999, trunk_parameters(64, 2, 4, 16) + (64 * 6 + 6) + 6 * 32 * 16 + (32 + 1)),
    ],
)
def test_parameter_counts(kind: Any, pinned: int, counted: int) -> None:
    model = build_model(preset_config("paper", kind), key=jax.random.key(0))
    assert count_parameters(model) == pinned == counted
    stated = re.search(rf"\| {kind} \| ([\d,]+) \|", (DOCS / "models.md").read_text(encoding="utf-8"))
    assert stated is not None
    assert int(stated[1].replace(",", "")) == pinned
