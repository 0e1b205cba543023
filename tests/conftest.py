"""Shapes and types are checked at run time in the tests, and only there."""

from hypothesis import settings
from jaxtyping import install_import_hook

# The rooms of arrays. The configuration checks its own values, and its tests give it wrong ones.
rooms = [f"recombine.{room}" for room in ("task", "model", "train", "measure", "experiment")]
install_import_hook(rooms, "beartype.beartype")

# Compiling takes its time on a busy machine; no test is about how long it takes. And the same examples every time.
settings.register_profile("recombine", deadline=None, derandomize=True)
settings.load_profile("recombine")
