# pyright: reportMissingImports=false
"""Episodes, sampled online in PyTorch by the paper's law."""

from math import sqrt
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from recombine.bench.setting import PeerSetting


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


def init_teacher(setting: PeerSetting) -> Teacher:
    """Normal entries with the standard deviations 1/√M and 1/√h, truncated at two standard deviations."""
    theta = torch.nn.init.trunc_normal_(
        torch.empty(setting.num_modules, setting.hidden_dim, setting.input_dim), a=-2.0, b=2.0
    )
    a = torch.nn.init.trunc_normal_(torch.empty(setting.hidden_dim), a=-2.0, b=2.0)
    return Teacher(theta / sqrt(setting.num_modules), a / sqrt(setting.hidden_dim))


def sample_latents(mask: Float[Tensor, "B M"]) -> Float[Tensor, "B M"]:
    """z ~ Exp(1)ᴹ;  z ← z ⊙ m;  z ← z / ‖z‖₁;  z ← ½ (z + m)."""
    z = torch.empty_like(mask).exponential_() * mask
    return 0.5 * (z / z.sum(dim=-1, keepdim=True) + mask)


@torch.no_grad()
def sample_episodes(setting: PeerSetting, teacher: Teacher, masks: Float[Tensor, "S M"]) -> Episodes:
    """y = aᵀ σ(W x), where W is Σ_m z_m θ_m over its operator norm, and x ~ U(−√3, √3). The last pair is the query."""
    z = sample_latents(masks[torch.randint(len(masks), (setting.batch_size,))])
    W = torch.einsum("bm,mhd->bhd", z, teacher.theta)
    W = W / torch.linalg.matrix_norm(W, ord=2, keepdim=True)
    x = torch.empty(setting.batch_size, setting.episode_length, setting.input_dim).uniform_(-sqrt(3), sqrt(3))
    y = F.gelu(x @ W.mT) @ teacher.a
    return Episodes(x[:, :-1], y[:, :-1], x[:, -1], y[:, -1], z)
