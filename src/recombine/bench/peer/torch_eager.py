# pyright: reportMissingImports=false
"""PyTorch, eager: the stock `nn.TransformerEncoder`, and the training loop of the tutorials.

There is no position bias: PyTorch's layers have none built in, so this peer does a little less than the paper's model.
AdamW decays all parameters, as it does by default.
"""

from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from recombine.bench.peer.job import Job, Stepper
from recombine.bench.peer.torch_task import Episodes, init_teacher, sample_episodes

__all__ = ["REQUIRES", "make_stepper"]

REQUIRES: tuple[str, ...] = ("torch",)


class EncoderTrunk(nn.Module):
    """(x₁, y₁), …, (x_{N−1}, y_{N−1}), (last_x, 0) through all layers; the last token's state."""

    def __init__(self, job: Job):
        super().__init__()
        self.embedding = nn.Linear(job.input_dim + 1, job.embed_dim)
        layer = nn.TransformerEncoderLayer(
            d_model=job.embed_dim,
            nhead=job.num_heads,
            dim_feedforward=job.ffn_factor * job.embed_dim,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        norm = nn.LayerNorm(job.embed_dim)
        # Nested tensors are for padded batches, and warn where the norm comes first.
        self.encoder = nn.TransformerEncoder(layer, job.num_layers, norm, enable_nested_tensor=False)

    def forward(
        self,
        context_x: Float[Tensor, "B context d"],
        context_y: Float[Tensor, "B context"],
        last_x: Float[Tensor, "B d"],
    ) -> Float[Tensor, "B embed"]:
        x = torch.cat([context_x, last_x[:, None]], dim=1)
        y = F.pad(context_y, (0, 1))
        return self.encoder(self.embedding(torch.cat([x, y[..., None]], dim=-1)))[:, -1]


class Transformer(nn.Module):
    """A trunk that sees the query, and a readout."""

    def __init__(self, job: Job, trunk: nn.Module):
        super().__init__()
        self.trunk = trunk
        self.readout = nn.Linear(job.embed_dim, 1)

    def forward(
        self,
        context_x: Float[Tensor, "B context d"],
        context_y: Float[Tensor, "B context"],
        query_x: Float[Tensor, "B d"],
    ) -> Float[Tensor, "B"]:
        return self.readout(self.trunk(context_x, context_y, query_x)).squeeze(-1)


class Hypertransformer(nn.Module):
    """A trunk that sees zeros for the query and infers z; then readout(σ(W x)) with W = Σ_m z_m θ_m."""

    def __init__(self, job: Job, trunk: nn.Module):
        super().__init__()
        self.trunk = trunk
        self.latent = nn.Linear(job.embed_dim, job.latent_dim)
        theta = torch.randn(job.latent_dim, job.main_hidden_dim, job.input_dim)
        self.theta = nn.Parameter(theta / sqrt(job.latent_dim * job.input_dim))
        self.readout = nn.Linear(job.main_hidden_dim, 1)

    def forward(
        self,
        context_x: Float[Tensor, "B context d"],
        context_y: Float[Tensor, "B context"],
        query_x: Float[Tensor, "B d"],
    ) -> Float[Tensor, "B"]:
        z = self.latent(self.trunk(context_x, context_y, torch.zeros_like(query_x)))
        W = torch.einsum("bm,mhd->bhd", z, self.theta)
        return self.readout(F.gelu(torch.einsum("bhd,bd->bh", W, query_x))).squeeze(-1)


def build_model(job: Job) -> nn.Module:
    torch.manual_seed(job.seed)
    return add_head(job, EncoderTrunk(job))


def add_head(job: Job, trunk: nn.Module) -> nn.Module:
    return Transformer(job, trunk) if job.kind == "transformer" else Hypertransformer(job, trunk)


def query_loss(model: nn.Module, episodes: Episodes) -> Float[Tensor, ""]:
    return F.mse_loss(model(episodes.context_x, episodes.context_y, episodes.query_x), episodes.query_y)


def make_stepper(job: Job) -> Stepper:
    return train(job, build_model(job))


def train(job: Job, model: nn.Module) -> Stepper:
    """The training loop, to be run a few steps at a time."""
    teacher = init_teacher(job)
    masks = torch.tensor(job.masks, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=job.learning_rate, weight_decay=job.weight_decay)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=job.num_steps)
    model.train()

    def step() -> Tensor:
        loss = query_loss(model, sample_episodes(job, teacher, masks))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), job.clip_norm)
        optimizer.step()
        scheduler.step()
        return loss.detach()

    def run(num_steps: int) -> float:
        for _ in range(num_steps - 1):
            step()
        return step().item()

    return run
