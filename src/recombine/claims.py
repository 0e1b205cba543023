"""The paper's claims, and our criteria for each.

The claims are the paper's. The criteria (statistic, comparison and threshold) are ours. They were written before any
long run was looked at; docs/decisions.md logs every later change.

A "relative" score is a model's R² between two references on the same episodes: 0 is ridge regression on the context,
1 is the oracle, which knows the teacher.
"""

from typing import Literal, NamedTuple


class Statistic(NamedTuple):
    """A number measured once per seed (by `STATISTICS` in `recombine.study.verdict`), and what it is compared with."""

    name: str
    words: str
    comparison: Literal[">=", "<=", "within"]  # within: between −threshold and +threshold
    threshold: float
    scale: Literal["linear", "log"] = "linear"  # log: a ratio, whose mean and interval are those of its logarithm


class Reading(NamedTuple):
    """One way to judge a claim. The claim holds in this reading if all its statistics hold."""

    name: str
    statistics: tuple[Statistic, ...]


class Claim(NamedTuple):
    """A claim of the paper. The first reading gives the verdict; the others are shown beside it."""

    number: int
    sentence: str
    panel: str
    readings: tuple[Reading, ...]


CLAIMS: tuple[Claim, ...] = (
    Claim(
        1,
        "The transformer fits in-distribution tasks, with a larger loss than the hypertransformer.",
        "A",
        (
            Reading(
                "loss and R²",
                (
                    Statistic("transformer_in_dist", "transformer's relative R² in distribution", ">=", 0.5),
                    Statistic(
                        "loss_ratio", "transformer's loss in distribution over the hypertransformer's", ">=", 1.1, "log"
                    ),
                ),
            ),
        ),
    ),
    Claim(
        2,
        "The transformer's R² drops on held-out combinations of modules.",
        "A",
        (
            Reading(
                "pooled R²",
                (
                    Statistic(
                        "transformer_drop", "transformer's relative R² in distribution minus out of it", ">=", 0.1
                    ),
                ),
            ),
        ),
    ),
    Claim(
        3,
        "The hypertransformer generalises to held-out combinations.",
        "A",
        (
            Reading(
                "pooled R²",
                (
                    Statistic("hypertransformer_ood", "hypertransformer's relative R² out of distribution", ">=", 0.5),
                    Statistic(
                        "ood_gap",
                        "hypertransformer's relative R² out of distribution minus the transformer's",
                        ">=",
                        0.1,
                    ),
                ),
            ),
            Reading(
                "the novel part",
                (
                    Statistic("hypertransformer_novel", "hypertransformer's R² on the novel part", ">=", 0.5),
                    Statistic(
                        "novel_gap", "hypertransformer's R² on the novel part minus the transformer's", ">=", 0.1
                    ),
                ),
            ),
            Reading(
                "the gap in R² itself",
                (
                    Statistic(
                        "ood_gap_r2", "hypertransformer's R² out of distribution minus the transformer's", ">=", 0.05
                    ),
                ),
            ),
        ),
    ),
    Claim(
        4,
        "The latent is linearly decodable on held-out combinations from both residual streams.",
        "B",
        (
            Reading(
                "the last residual stream",
                (
                    Statistic(
                        "transformer_probe",
                        "probe's R² out of distribution, transformer's last residual stream",
                        ">=",
                        0.5,
                    ),
                    Statistic(
                        "hypertransformer_probe",
                        "probe's R² out of distribution, hypertransformer's last residual stream",
                        ">=",
                        0.5,
                    ),
                ),
            ),
        ),
    ),
    Claim(
        5,
        "On the unstructured control the hypertransformer fails and the transformer keeps modest performance.",
        "C",
        (
            Reading(
                "fresh modules, the readout kept",
                (
                    Statistic("hypertransformer_control_modules", "hypertransformer's R² on fresh modules", "<=", 0.1),
                    Statistic("transformer_control_modules", "transformer's R² on fresh modules", ">=", 0.1),
                ),
            ),
            Reading(
                "a fresh teacher",
                (
                    Statistic("hypertransformer_control", "hypertransformer's R² on the control", "<=", 0.1),
                    Statistic("transformer_control", "transformer's R² on the control", ">=", 0.1),
                ),
            ),
        ),
    ),
    Claim(
        6,
        "A disconnected support breaks the hypertransformer's generalisation and leaves the transformer's unchanged.",
        "D",
        (
            Reading(
                "R² on the masks outside both supports",
                (
                    Statistic(
                        "hypertransformer_connected",
                        "hypertransformer's relative R² out of distribution, trained on connected",
                        ">=",
                        0.5,
                    ),
                    Statistic(
                        "hypertransformer_outside",
                        "hypertransformer's R² on masks in neither support, trained on connected minus disconnected",
                        ">=",
                        0.05,
                    ),
                    Statistic(
                        "transformer_outside",
                        "transformer's R² on masks in neither support, trained on connected minus disconnected",
                        "within",
                        0.05,
                    ),
                ),
            ),
            Reading(
                "the novel part on the masks outside both supports",
                (
                    Statistic(
                        "hypertransformer_novel_connected_outside",
                        "hypertransformer's R² on the novel part of masks in neither support, trained on connected",
                        ">=",
                        0.5,
                    ),
                    Statistic(
                        "hypertransformer_novel_outside",
                        "hypertransformer's R² on the novel part of masks in neither support, "
                        "trained on connected minus disconnected",
                        ">=",
                        0.1,
                    ),
                    Statistic(
                        "transformer_novel_outside",
                        "transformer's R² on the novel part of masks in neither support, "
                        "trained on connected minus disconnected",
                        "within",
                        0.1,
                    ),
                ),
            ),
            Reading(
                "relative R² on each support's own held-out masks",
                (
                    Statistic(
                        "hypertransformer_connected",
                        "hypertransformer's relative R² out of distribution, trained on connected",
                        ">=",
                        0.5,
                    ),
                    Statistic(
                        "hypertransformer_support",
                        "hypertransformer's relative R² out of distribution, trained on connected minus on "
                        "disconnected",
                        ">=",
                        0.2,
                    ),
                    Statistic(
                        "transformer_support",
                        "transformer's relative R² out of distribution, trained on connected minus on disconnected",
                        "within",
                        0.1,
                    ),
                ),
            ),
        ),
    ),
    Claim(
        7,
        "A linear transformer can implement the hypernetwork exactly.",
        "–",
        (
            Reading(
                "the construction",
                (
                    Statistic(
                        "construction_error",
                        "largest error of the construction, relative to the largest output",
                        "<=",
                        1e-5,
                    ),
                ),
            ),
        ),
    ),
)
