"""The runs of the demo, in their archives or copied to a directory as if trained there."""

from pathlib import Path

from recombine.storage.archive import open_archive
from recombine.storage.demo import demo_archives


def demo_run(name: str) -> Path:
    """`quick/transformer-connected+-seed0` as a path into its archive."""
    study, _, run = name.partition("/")
    return demo_archives()[study] / run


def copy_demo_run(name: str, to: Path) -> None:
    path = demo_run(name)
    archive = open_archive(path.parent)
    to.mkdir(parents=True)
    for member in archive.names():
        if member.startswith(f"{path.name}/"):
            (to / Path(member).name).write_bytes(archive.read(member))


def copy_demo(study: str, to: Path) -> None:
    """Copy the references and every run of a study that has its parameters."""
    archive = open_archive(demo_archives()[study])
    playable = {name.partition("/")[0] for name in archive.names() if name.endswith("model.safetensors")}
    for member in archive.names():
        if member.partition("/")[0] in playable | {"references"}:
            (to / member).parent.mkdir(parents=True, exist_ok=True)
            (to / member).write_bytes(archive.read(member))
