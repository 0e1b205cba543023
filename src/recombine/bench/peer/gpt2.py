# pyright: reportMissingImports=false
"""Hugging Face's GPT-2, as dtsip/in-context-learning uses it: x and y are separate tokens.

x₁, y₁, …, x_{N−1}, y_{N−1}, x_N are 2N − 1 tokens, read in by one linear layer (a y is filled up with zeros), and the
last one is read out. The backbone is causal and has learned absolute positions, for it has no other: the paper's
attention has no mask, and relative positions. The loss is taken at the query alone, as in the paper, not at every y.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2Model

from recombine.bench.peer import torch_eager
from recombine.bench.peer.job import Job, Stepper

__all__ = ["REQUIRES", "make_stepper"]

REQUIRES: tuple[str, ...] = ("torch", "transformers")


class GPT2Trunk(nn.Module):
    """x₁, y₁, …, x_{N−1}, y_{N−1}, last_x through all layers; the last token's state."""

    def __init__(self, job: Job):
        super().__init__()
        self.read_in = nn.Linear(job.input_dim, job.embed_dim)
        self.backbone = GPT2Model(
            GPT2Config(
                vocab_size=1,  # there are no words; the default's 50257 rows would only take memory
                bos_token_id=None,
                eos_token_id=None,
                n_positions=2 * job.episode_length - 1,
                n_embd=job.embed_dim,
                n_layer=job.num_layers,
                n_head=job.num_heads,
                n_inner=job.ffn_factor * job.embed_dim,
                activation_function="gelu",  # the exact one, as in the paper; GPT-2's own is an approximation
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


def build_model(job: Job) -> nn.Module:
    torch.manual_seed(job.seed)
    return torch_eager.add_head(job, GPT2Trunk(job))


def make_stepper(job: Job) -> Stepper:
    return torch_eager.train(job, build_model(job))
