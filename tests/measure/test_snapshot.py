"""A saved checkpoint, evaluated in NumPy from its files, has the stored scores."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from recombine.cli.main import main
from recombine.config.preset import preset_config
from recombine.config.toml import override
from recombine.run.training import execute_run
from tests.paper import numpy_models


@pytest.mark.parametrize("kind", ["transformer", "hypertransformer"])
def test_metrics_agree_with_numpy(kind: str, tmp_path: Path) -> None:
    changes = {"optimizer": {"num_steps": 6}, "measure": {"episodes": 20, "snapshots": 1}}
    config = override(preset_config("smoke", kind), changes)
    for _ in execute_run(config, tmp_path / "run"):
        pass
    row = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    state = load_file(max((tmp_path / "run" / "checkpoints").glob("step-*")) / "state.safetensors")
    weights = {name.removeprefix("model."): value for name, value in state.items() if name.startswith("model.")}
    for split in ("in_dist", "ood", "control", "control_modules"):
        file = tmp_path / f"{split}.npz"
        sizes = ["--episodes", "20", "--length", "8", "--input-dim", "4", "--hidden-dim", "4"]
        assert main(["task", "sample", "--split", split, *sizes, "--out", str(file)]) == 0
        data = np.load(file)
        model = getattr(numpy_models, kind)
        options = {"heads": 4, "layers": 2, "causal": False, "scaled": True}
        y = [
            model(weights, x, labels, query, **options)[0]
            for x, labels, query in zip(data["context_x"], data["context_y"], data["query_x"], strict=True)
        ]
        error = np.sum((data["query_y"] - y) ** 2)
        spread = np.sum((data["query_y"] - data["context_y"].astype(float).mean(axis=1)) ** 2)
        assert row[split]["r2"] == pytest.approx(1 - error / spread, abs=1e-5)
        assert row[split]["mse"] == pytest.approx(error / 20, abs=1e-5)
