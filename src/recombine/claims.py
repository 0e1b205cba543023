"""The paper's claims, and our criteria for each.

The claims are the paper's. The criteria (statistic, comparison and threshold) are ours. They were written before any
long run was looked at; docs/decisions.md logs every later change.

A "relative" score is a model's R² between two references on the same episodes: 0 is ridge regression on the context,
1 is the oracle, which knows the teacher.
"""

from typing import Literal, NamedTuple


class Statistic(NamedTuple):
    """One number per seed, computed by `recombine.study.verdict`, and the threshold it is compared with."""

    name: str
    words: str
    comparison: Literal[">=", "<=", "within"]  # within: between −threshold and +threshold
    threshold: float


class Claim(NamedTuple):
    """A claim of the paper. It holds if every one of its statistics passes its threshold."""

    number: int
    sentence: str
    panel: str
    statistics: tuple[Statistic, ...]


CLAIMS: tuple[Claim, ...] = (
    Claim(
        1,
        "The transformer fits in-distribution tasks, with a larger loss than the hypertransformer.",
        "A",
        (
            Statistic("transformer_in_dist", "transformer's relative R² in distribution", ">=", 0.5),
            Statistic("loss_ratio", "transformer's loss in distribution over the hypertransformer's", ">=", 1.1),
        ),
    ),
    Claim(
        2,
        "The transformer's R² drops on held-out combinations of modules.",
        "A",
        (Statistic("transformer_drop", "transformer's relative R² in distribution minus out of it", ">=", 0.1),),
    ),
    Claim(
        3,
        "The hypertransformer generalises to held-out combinations.",
        "A",
        (
            Statistic("hypertransformer_ood", "hypertransformer's relative R² out of distribution", ">=", 0.5),
            Statistic(
                "ood_gap", "hypertransformer's relative R² out of distribution minus the transformer's", ">=", 0.1
            ),
        ),
    ),
    Claim(
        4,
        "The latent is linearly decodable on held-out combinations from both residual streams.",
        "B",
        (
            Statistic(
                "transformer_probe", "probe's R² out of distribution, transformer's last residual stream", ">=", 0.5
            ),
            Statistic(
                "hypertransformer_probe",
                "probe's R² out of distribution, hypertransformer's last residual stream",
                ">=",
                0.5,
            ),
        ),
    ),
    Claim(
        5,
        "On the unstructured control the hypertransformer fails and the transformer keeps modest performance.",
        "C",
        (
            Statistic("hypertransformer_control", "hypertransformer's R² on the control", "<=", 0.1),
            Statistic("transformer_control", "transformer's R² on the control", ">=", 0.1),
        ),
    ),
    Claim(
        6,
        "A disconnected support breaks the hypertransformer's generalisation and leaves the transformer's unchanged.",
        "D",
        (
            Statistic(
                "hypertransformer_connected",
                "hypertransformer's relative R² out of distribution, trained on connected",
                ">=",
                0.5,
            ),
            Statistic(
                "hypertransformer_support",
                "hypertransformer's relative R² out of distribution, trained on connected minus on disconnected",
                ">=",
                0.2,
            ),
            Statistic("transformer_support", "the same difference for the transformer", "within", 0.1),
        ),
    ),
    Claim(
        7,
        "A linear transformer can implement the hypernetwork exactly.",
        "–",
        (
            Statistic(
                "construction_error", "largest error of the construction, relative to the largest output", "<=", 1e-5
            ),
        ),
    ),
)
