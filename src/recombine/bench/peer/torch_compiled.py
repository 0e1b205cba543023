"""PyTorch, compiled: the module of `torch_eager` through `torch.compile`; the rest as there."""

import os
import shutil
import sys

from recombine.bench.peer import torch_eager
from recombine.bench.peer.job import Job, Missing, Stepper

__all__ = ["REQUIRES", "make_stepper"]

REQUIRES: tuple[str, ...] = ("torch",)


def cpp_compiler() -> str | None:
    """The C++ compiler that `torch.compile` would call for a CPU, where there is one."""
    return shutil.which(os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++"))


def make_stepper(job: Job) -> Stepper:
    if cpp_compiler() is None:
        raise Missing("torch.compile needs a C++ compiler on a CPU, and there is none")
    model = torch_eager.build_model(job)
    model.compile()  # torch.compile, in place
    return torch_eager.train(job, model)
