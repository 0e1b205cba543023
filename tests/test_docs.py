"""The README, the docs and the examples say what is true, and their code runs."""

import importlib.util
import json
import re
import shlex
import tomllib
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recombine.claims import CLAIMS
from recombine.cli.main import COMMANDS, main, parse
from recombine.config.schema import field_names
from recombine.jobs.paper_runs import paper_runs
from recombine.measure.latent.explicit_inference import improve_latent
from recombine.model.interface import Output
from recombine.support.support import paper_support
from recombine.task.teacher import HypernetworkTeacher

ROOT = Path(__file__).parents[1]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_the_claims_are_those_that_are_judged() -> None:
    rows = [line.strip("|").split("|") for line in page("claims.md").splitlines() if line.startswith("| ")][1:]
    found = [tuple(cell.strip() for cell in row) for row in rows]
    expected = []
    for claim in CLAIMS:
        head = (str(claim.number), claim.sentence, claim.panel)
        for reading in claim.readings:
            name = reading.name
            for statistic in reading.statistics:
                sign = {">=": "≥ ", "<=": "≤ ", "within": "within ±"}[statistic.comparison]
                expected.append((*head, name, statistic.words, f"{sign}{statistic.threshold:g}"))
                head, name = ("", "", ""), ""
    assert found == expected


def test_the_commands_parse() -> None:
    (block,) = re.findall(r"^```sh\n(.*?)^```$", page("commands.md"), re.DOTALL | re.MULTILINE)
    commands = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert {words[1] for words in commands} >= {name for name in COMMANDS if name != "score"}
    for words in commands:
        assert words[0] == "recombine"
        parse(words[1:])


def test_the_configuration_is_valid() -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```$", page("configuration.md"), re.DOTALL | re.MULTILINE)
    configs = {entry.config.model.label: entry.config for entry in paper_runs("quick", tomllib.loads(text), [0])}
    assert all(config.task.episode_length == 64 for config in configs.values())
    assert getattr(configs["hypertransformer"].model, "latent_dim", None) == 8


def test_every_field_has_its_meaning() -> None:
    rows = [line.strip("|").split("|") for line in page("configuration.md").splitlines() if line.startswith("| `")]
    assert {row[0].strip(" `") for row in rows} >= {
        f"{group}.{name}" for group, names in field_names().items() for name in names
    }
    assert all(row[2].strip() for row in rows)


def test_the_example_is_the_model_that_is_shipped() -> None:
    _, printed = re.findall(r"^```python\n(.*?)^```$", page("custom_model.md"), re.DOTALL | re.MULTILINE)
    assert printed == (ROOT / "src/recombine/model/bottleneck.py").read_text(encoding="utf-8")


def test_the_small_example_is_trained_and_probed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    text = page("custom_model.md")
    Path("my_model.py").write_text(re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[0])
    command = re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[0]
    shorter = ["--set", "optimizer.num_steps=2", "measure.snapshots=1", "--json"]
    assert main([*shlex.split(command)[1:], *shorter]) == 0
    assert json.loads(capsys.readouterr().out)["scores"]["probe"]["latent"]["ood"] is not None


@pytest.mark.slow
def test_the_example_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The class is in a file of the current directory. All printed commands are run, except the long one."""
    monkeypatch.chdir(tmp_path)
    _, block = re.findall(r"^```sh\n(.*?)^```$", page("custom_model.md"), re.DOTALL | re.MULTILINE)
    train, evaluate, _ = [shlex.split(line)[1:] for line in block.splitlines()]
    assert main(train) == 0
    assert "Bottleneck" in capsys.readouterr().out
    assert main(evaluate) == 0
    assert "modules recovered" in capsys.readouterr().out


def test_the_tests_that_the_docs_name_exist() -> None:
    names = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    for path in [*(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md"]:
        for named in re.findall(r"[\w/]*test_\w+\.py", path.read_text(encoding="utf-8")):
            assert (ROOT / named).is_file() if "/" in named else named in names, f"{path.name}: {named}"


def test_links_lead_somewhere() -> None:
    for path in (ROOT / "docs").glob("*.md"):
        for link in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / link).exists(), f"{path.name}: {link}"


README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_the_python_is_that_of_its_page() -> None:
    """docs/python.md has the same block, and a test that runs it."""
    (code,) = blocks("python")
    assert f"```python\n{code}```" in (ROOT / "docs" / "python.md").read_text(encoding="utf-8")


def test_the_commands() -> None:
    commands = [shlex.split(line, comments=True) for block in blocks("sh") for line in block.splitlines()]
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert commands == [["make", target] for target in ("demo", "reproduce", "test")]
    assert {"reproduce", "test", "demo"} <= set(targets)


def test_it_is_one_page() -> None:
    assert len(README.split()) <= 800


def test_the_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if not link.startswith("https://")]
    assert len(links) > 4
    for link in links:
        assert (ROOT / link).exists(), link


PATH = Path(__file__).parents[1] / "examples" / "one_file.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    specification = importlib.util.spec_from_file_location("one_file", PATH)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_it_is_short_and_hides_nothing() -> None:
    text = PATH.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    assert "import recombine" not in text
    assert "from recombine" not in text


def test_it_runs(example: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    example.main(3)
    assert capsys.readouterr().out.count("R²") == 2


def test_its_tasks_are_the_papers(example: ModuleType) -> None:
    teacher = HypernetworkTeacher(example.THETA, example.READOUT)
    x, y = example.sample_episode(jax.random.key(1), example.TRAINED)
    z = jnp.zeros(example.M).at[1].set(0.7).at[4].set(0.8)
    np.testing.assert_allclose(example.label(z, x), teacher.label(z, x), rtol=1e-4, atol=1e-6)
    assert y.shape == (example.N,)
    support = paper_support("connected+")
    for pairs, masks in ((example.TRAINED, support.masks), (example.HELD_OUT, support.held_out)):
        found = {tuple(int(m in pair) for m in range(6)) for pair in pairs.tolist()}
        assert found == set(masks)


def test_its_explicit_inference_is_the_scorecards(example: ModuleType) -> None:
    model = example.init_model(jax.random.key(2))
    x, y = example.sample_episode(jax.random.key(3), example.TRAINED)

    class Model:
        def __call__(self, context_x: jax.Array, context_y: jax.Array, query_x: jax.Array) -> Output:
            raise NotImplementedError

        def execute(self, z: jax.Array, x: jax.Array) -> jax.Array:
            return example.execute(model, z, x)

    expected = improve_latent(Model(), jnp.zeros(6), x, y, 3)[-1]
    np.testing.assert_allclose(example.infer_explicitly(model, jnp.zeros(6), x, y), expected, rtol=1e-3, atol=1e-4)
