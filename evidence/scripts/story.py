"""`python evidence/scripts/story.py`: measures the demo's story, paper/story.json, in a few minutes."""

from recombine.files import replace_file
from recombine.record.codec import encode
from recombine.run.load import load_model
from recombine.run.machine import prepare
from recombine.storage.demo import demo_archives
from recombine.story.pack import FACTS, demo_paths
from recombine.story.pair import measure_facts, story_pair


def main() -> None:
    prepare(1)
    facts = measure_facts(story_pair([load_model(path) for path in demo_paths()]))
    replace_file(demo_archives()["paper"].with_name(FACTS), f"{encode(facts, indent=1)}\n".encode())


if __name__ == "__main__":
    main()
