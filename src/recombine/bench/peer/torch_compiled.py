"""PyTorch, compiled: the model of `torch_eager` through `torch.compile`."""

import os
import shutil
import sys

from recombine.bench.peer import torch_eager
from recombine.bench.setting import MissingRequirement, PeerSetting, Stepper

__all__ = ["REQUIRES", "make_stepper"]

REQUIRES: tuple[str, ...] = ("torch",)


def cpp_compiler() -> str | None:
    """The C++ compiler that `torch.compile` calls for a CPU. None if there is none."""
    return shutil.which(os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++"))


def make_stepper(setting: PeerSetting) -> Stepper:
    if cpp_compiler() is None:
        raise MissingRequirement("torch.compile needs a C++ compiler on a CPU, and there is none")
    model = torch_eager.build_model(setting)
    model.compile()  # torch.compile, in place
    return torch_eager.train(setting, model)
