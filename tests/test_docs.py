"""The docs are correct: the claims match the code, and the example of a custom model runs as printed."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from recombine.claims import CLAIMS
from recombine.cli.main import COMMANDS, main, parse
from recombine.config.schema import field_names
from recombine.jobs.paper_runs import paper_runs

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
    (printed,) = re.findall(r"^```python\n(.*?)^```$", page("custom_model.md"), re.DOTALL | re.MULTILINE)
    assert printed == (ROOT / "src/recombine/model/bottleneck.py").read_text(encoding="utf-8")


def test_the_example_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The class is in a file of the current directory. All printed commands are run, except the long one."""
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"^```sh\n(.*?)^```$", page("custom_model.md"), re.DOTALL | re.MULTILINE)
    train, evaluate, _ = [shlex.split(line)[1:] for line in block.splitlines()]
    assert main(train) == 0
    assert "Bottleneck" in capsys.readouterr().out
    assert main(evaluate) == 0
    assert "modules recovered" in capsys.readouterr().out


def test_links_lead_somewhere() -> None:
    for path in (ROOT / "docs").glob("*.md"):
        for link in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / link).exists(), f"{path.name}: {link}"
