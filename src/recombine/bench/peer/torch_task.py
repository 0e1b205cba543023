# pyright: reportMissingImports=false
"""Episodes, sampled online in PyTorch by the paper's law."""

from math import sqrt
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from recombine.bench.peer.job import Job


class Teacher(NamedTuple):
    """The modules and the readout that all tasks share."""

    theta: Float[Tensor, "M h d"]
    a: Float[Tensor, "h"]


class Episodes(NamedTuple):
    """A batch of tasks in context, and the latents that they stand for."""

    context_x: Float[Tensor, "B context d"]
    context_y: Float[Tensor, "B context"]
    query_x: Float[Tensor, "B d"]
    query_y: Float[Tensor, "B"]
    latent: Float[Tensor, "B M"]


def init_teacher(job: Job) -> Teacher:
    """Entries from normals of standard deviation 1/√M and 1/√h, cut at two of them."""
    theta = torch.nn.init.trunc_normal_(torch.empty(job.num_modules, job.hidden_dim, job.input_dim), a=-2.0, b=2.0)
    a = torch.nn.init.trunc_normal_(torch.empty(job.hidden_dim), a=-2.0, b=2.0)
    return Teacher(theta / sqrt(job.num_modules), a / sqrt(job.hidden_dim))


def sample_latents(mask: Float[Tensor, "B M"]) -> Float[Tensor, "B M"]:
    """z ~ Exp(1)ᴹ;  z ← z ⊙ m;  z ← z / ‖z‖₁;  z ← ½ (z + m)."""
    z = torch.empty_like(mask).exponential_() * mask
    return 0.5 * (z / z.sum(dim=-1, keepdim=True) + mask)


@torch.no_grad()
def sample_episodes(job: Job, teacher: Teacher, masks: Float[Tensor, "S M"]) -> Episodes:
    """y = aᵀ σ(W x) with W = Σ_m z_m θ_m divided by its operator norm, x ~ U(−√3, √3); the last pair is the query."""
    z = sample_latents(masks[torch.randint(len(masks), (job.batch_size,))])
    W = torch.einsum("bm,mhd->bhd", z, teacher.theta)
    W = W / torch.linalg.matrix_norm(W, ord=2, keepdim=True)
    x = torch.empty(job.batch_size, job.episode_length, job.input_dim).uniform_(-sqrt(3), sqrt(3))
    y = F.gelu(x @ W.mT) @ teacher.a
    return Episodes(x[:, :-1], y[:, :-1], x[:, -1], y[:, -1], z)
