"""`python evidence/scripts/explorer.py`: what the demo's explorer has stored beside its archives, explorer.json."""

from recombine.files import replace_file
from recombine.record.codec import encode
from recombine.run.machine import prepare
from recombine.serve.explorer.exchange import Inputs
from recombine.serve.explorer.explorer import Explorer
from recombine.serve.explorer.in_page import STORED, StoredExplorer
from recombine.storage.demo import demo_archives
from recombine.storage.source import find_runs


def main() -> None:
    prepare(1)
    explorer = Explorer(stored=False)
    for archive in demo_archives().values():
        paths = [source.path for source in find_runs(archive) if source.has_parameters()]
        maps = {path.name: explorer.pack(path).maps for path in paths}
        stored = StoredExplorer(explorer.scene(paths[0], Inputs(0)), maps)
        replace_file(archive.with_name(STORED), f"{encode(stored, indent=1)}\n".encode())


if __name__ == "__main__":
    main()
