# pyright: reportMissingImports=false
"""PyTorch, eager: the stock `nn.TransformerEncoder`.

The training loop is that of the tutorials. There is no position bias: PyTorch's layers have none built in. So this peer
does a little less than the paper's model. AdamW decays all parameters, as it does by default.
"""

from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from recombine.bench.peer.torch_task import Episodes, init_teacher, sample_episodes
from recombine.bench.setting import PeerSetting, Stepper

__all__ = ["REQUIRES", "make_stepper"]

REQUIRES: tuple[str, ...] = ("torch",)


class EncoderTrunk(nn.Module):
    """(x₁, y₁), …, (x_{N−1}, y_{N−1}), (last_x, 0) through all layers; returns the last token's state."""

    def __init__(self, setting: PeerSetting):
        super().__init__()
        self.embedding = nn.Linear(setting.input_dim + 1, setting.embed_dim)
        layer = nn.TransformerEncoderLayer(
            d_model=setting.embed_dim,
            nhead=setting.num_heads,
            dim_feedforward=setting.ffn_factor * setting.embed_dim,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        norm = nn.LayerNorm(setting.embed_dim)
        # Nested tensors are for padded batches, and warn where the norm comes first.
        self.encoder = nn.TransformerEncoder(layer, setting.num_layers, norm, enable_nested_tensor=False)

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

    def __init__(self, setting: PeerSetting, trunk: nn.Module):
        super().__init__()
        self.trunk = trunk
        self.readout = nn.Linear(setting.embed_dim, 1)

    def forward(
        self,
        context_x: Float[Tensor, "B context d"],
        context_y: Float[Tensor, "B context"],
        query_x: Float[Tensor, "B d"],
    ) -> Float[Tensor, "B"]:
        return self.readout(self.trunk(context_x, context_y, query_x)).squeeze(-1)


class Hypertransformer(nn.Module):
    """A trunk that sees zeros for the query and infers z. The prediction is readout(σ(W x)) with W = Σ_m z_m θ_m."""

    def __init__(self, setting: PeerSetting, trunk: nn.Module):
        super().__init__()
        self.trunk = trunk
        self.latent = nn.Linear(setting.embed_dim, setting.latent_dim)
        theta = torch.randn(setting.latent_dim, setting.main_hidden_dim, setting.input_dim)
        self.theta = nn.Parameter(theta / sqrt(setting.latent_dim * setting.input_dim))
        self.readout = nn.Linear(setting.main_hidden_dim, 1)

    def forward(
        self,
        context_x: Float[Tensor, "B context d"],
        context_y: Float[Tensor, "B context"],
        query_x: Float[Tensor, "B d"],
    ) -> Float[Tensor, "B"]:
        z = self.latent(self.trunk(context_x, context_y, torch.zeros_like(query_x)))
        W = torch.einsum("bm,mhd->bhd", z, self.theta)
        return self.readout(F.gelu(torch.einsum("bhd,bd->bh", W, query_x))).squeeze(-1)


def build_model(setting: PeerSetting) -> nn.Module:
    torch.manual_seed(setting.seed)
    return add_head(setting, EncoderTrunk(setting))


def add_head(setting: PeerSetting, trunk: nn.Module) -> nn.Module:
    return Transformer(setting, trunk) if setting.kind == "transformer" else Hypertransformer(setting, trunk)


def query_loss(model: nn.Module, episodes: Episodes) -> Float[Tensor, ""]:
    return F.mse_loss(model(episodes.context_x, episodes.context_y, episodes.query_x), episodes.query_y)


def make_stepper(setting: PeerSetting) -> Stepper:
    return train(setting, build_model(setting))


def train(setting: PeerSetting, model: nn.Module) -> Stepper:
    """The training loop, which runs a few steps per call."""
    teacher = init_teacher(setting)
    masks = torch.tensor(setting.masks, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=setting.learning_rate, weight_decay=setting.weight_decay)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=setting.num_steps)
    model.train()

    def step() -> Tensor:
        loss = query_loss(model, sample_episodes(setting, teacher, masks))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), setting.clip_norm)
        optimizer.step()
        scheduler.step()
        return loss.detach()

    def run(num_steps: int) -> float:
        for _ in range(num_steps - 1):
            step()
        return step().item()

    return run
