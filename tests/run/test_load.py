"""A model is loaded as it was stored; a file that asks for another model is refused before it is built."""

import json
import shutil
import struct
import tomllib
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tomli_w

from recombine.cli.main import main
from recombine.config.toml import override, write_toml
from recombine.errors import InputError
from recombine.model.bottleneck import _closest_width
from recombine.model.weights import named_arrays
from recombine.run.load import load_model, restore_state
from recombine.storage.checkpoint import list_checkpoints, read_checkpoint, save_checkpoint
from recombine.storage.source import CHECKPOINTS, CONFIG, WEIGHTS
from recombine.train.step import init_state
from tests.compile_events import compiled_programs
from tests.reliability.small_run import finish, small_config

# Sizes that a configuration may have, but no machine: a model of them has 2⁴⁸ parameters and more.
HUGE = {
    "width": {"embed_dim": 65_536, "ffn_factor": 65_536},
    "blocks": {"num_layers": 65_536},
    "heads": {"embed_dim": 65_536, "num_heads": 65_536},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with its checkpoints, and the same run as it was exported."""
    place = tmp_path_factory.mktemp("place")
    finish(place / "run")
    assert main(["export", str(place / "run"), "--weights", "--out", str(place / "out")]) == 0
    (place / "out" / "run").rename(place / "exported")
    return place


def change_config(run: Path, changes: dict[str, Any]) -> None:
    """Change the run's model in every file that names it."""
    config = override(small_config(), changes)
    (run / CONFIG).write_text(write_toml(config))
    for path in list_checkpoints(run / CHECKPOINTS):
        checkpoint = read_checkpoint(path)
        shutil.rmtree(path)
        save_checkpoint(run / CHECKPOINTS, checkpoint._replace(texts={**checkpoint.texts, CONFIG: write_toml(config)}))


@pytest.mark.parametrize("name", ["run", "exported"])
def test_loading_compiles_nothing(place: Path, name: str) -> None:
    with compiled_programs() as compiled:
        load_model(place / name)
        assert not compiled
        jax.jit(lambda x: x - np.float32(place.stat().st_ino))(np.ones(2))
        assert compiled, "though programs are counted"


def test_the_tree_is_that_of_a_new_model_and_the_arrays_are_those_of_the_file(place: Path) -> None:
    for kind in ("transformer", "hypertransformer", "recombine.model.bottleneck:Bottleneck"):
        config = small_config(model={"kind": kind}) if kind != "transformer" else small_config()
        fresh = init_state(config)
        rng = np.random.default_rng(0)
        stored = {n: rng.normal(size=a.shape).astype(a.dtype) for n, a in named_arrays(fresh).items()}
        state = restore_state(config, stored, "a test")
        assert jax.tree.structure(state) == jax.tree.structure(fresh)
        found = named_arrays(state)
        assert found.keys() == stored.keys()
        for name, array in stored.items():
            assert (found[name].dtype, found[name].tobytes()) == (array.dtype, array.tobytes())
        assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state) if hasattr(leaf, "shape"))


def test_a_checkpoint_and_its_export_are_the_same_model(place: Path) -> None:
    one, other = (load_model(place / name) for name in ("run", "exported"))
    assert (one.config, one.step) == (other.config, other.step)
    arrays, others = named_arrays(one.model), named_arrays(other.model)
    assert arrays.keys() == others.keys()
    assert all(np.array_equal(arrays[name], others[name]) for name in arrays)


@pytest.mark.parametrize("name", ["run", "exported"])
@pytest.mark.parametrize("sizes", HUGE.values(), ids=HUGE)
def test_nothing_is_allocated_for_sizes_that_the_file_does_not_have(
    place: Path, tmp_path: Path, name: str, sizes: dict[str, int]
) -> None:
    run = shutil.copytree(place / name, tmp_path / "run")
    (run / "manifest.json").unlink(missing_ok=True)  # or the change is refused, whatever it is
    change_config(run, {"model": sizes})
    with pytest.raises(InputError) as caught:
        load_model(run)
    assert caught.value.field == "weights"


@pytest.mark.parametrize(
    "options", [{"embed_dim": 65_536}, {"latent_dim": 65_536, "hidden_dim": 65_536}, {"num_layers": 65_536},
                {"unknown": 1}, {"num_heads": "two"}],
    ids=str,
)  # fmt: skip
def test_a_class_of_ours_with_other_options(place: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    """The shipped class is built without a command naming it, from options in an untrusted file."""
    run = shutil.copytree(place / "exported", tmp_path / "run")
    (run / "manifest.json").unlink()
    tables = tomllib.loads((run / CONFIG).read_text())
    tables["model"] = {"kind": "recombine.model.bottleneck:Bottleneck", "options": options}
    (run / CONFIG).write_text(tomli_w.dumps(tables))
    with pytest.raises(InputError):
        load_model(run)


def test_the_closest_width() -> None:
    """Compared with a search over all widths that counts the weights of the layers."""
    for inputs in (2, 5, 24, 40):
        for budget in range(3, 2_000, 7):
            counts = {w: (inputs + 1) * w + (w + 1) * w + (w + 1) for w in range(1, budget)}
            assert _closest_width(inputs, budget) == min(counts, key=lambda w: abs(counts[w] - budget))


@pytest.mark.parametrize("kind", ["BF16", "F8_E4M3", "I64", "F64", "U8", "BOOL", "X"])
def test_parameters_of_another_type(place: Path, tmp_path: Path, kind: str) -> None:
    run = shutil.copytree(place / "exported", tmp_path / "run")
    header = json.dumps({"readout.bias": {"dtype": kind, "shape": [0], "data_offsets": [0, 0]}}).encode()
    (run / WEIGHTS).write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(InputError):
        load_model(run)
