# pyright: reportMissingImports=false
"""Hugging Face's GPT-2, with x and y as separate tokens.

The model is that of dtsip/in-context-learning. An episode x₁, y₁, …, x_{N−1}, y_{N−1}, x_N is 2N − 1 tokens. One linear
layer reads them in (zeros fill up a y), and the prediction is read out of the last one. GPT-2 is causal and has learned
absolute positions, where the paper's attention has no mask and relative positions. The loss is that of the query alone,
as in the paper, not that of every y.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2Model

from recombine.bench.peer import torch_eager
from recombine.bench.setting import PeerSetting, Stepper

__all__ = ["REQUIRES", "make_stepper"]

REQUIRES: tuple[str, ...] = ("torch", "transformers")


class GPT2Trunk(nn.Module):
    """x₁, y₁, …, x_{N−1}, y_{N−1}, last_x through all layers; returns the last token's state."""

    def __init__(self, setting: PeerSetting):
        super().__init__()
        self.read_in = nn.Linear(setting.input_dim, setting.embed_dim)
        self.backbone = GPT2Model(
            GPT2Config(
                vocab_size=1,  # there are no words; the default of 50257 rows would only take memory
                bos_token_id=None,
                eos_token_id=None,
                n_positions=2 * setting.episode_length - 1,
                n_embd=setting.embed_dim,
                n_layer=setting.num_layers,
                n_head=setting.num_heads,
                n_inner=setting.ffn_factor * setting.embed_dim,
                activation_function="gelu",  # the exact GELU, as in the paper; GPT-2's default is an approximation
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
                use_cache=False,
            )
        )

    def forward(
        self,
        context_x: Float[Tensor, "B context d"],
        context_y: Float[Tensor, "B context"],
        last_x: Float[Tensor, "B d"],
    ) -> Float[Tensor, "B embed"]:
        wide_y = F.pad(context_y[..., None], (0, context_x.shape[-1] - 1))
        pairs = torch.stack([context_x, wide_y], dim=2).flatten(1, 2)
        tokens = torch.cat([pairs, last_x[:, None]], dim=1)
        return self.backbone(inputs_embeds=self.read_in(tokens)).last_hidden_state[:, -1]


def build_model(setting: PeerSetting) -> nn.Module:
    torch.manual_seed(setting.seed)
    return torch_eager.add_head(setting, GPT2Trunk(setting))


def make_stepper(setting: PeerSetting) -> Stepper:
    return torch_eager.train(setting, build_model(setting))
