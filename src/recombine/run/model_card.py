"""The model card beside exported weights: what the model is, how it scores, how to load it."""

from recombine.config.toml import write_toml
from recombine.storage.reader import StoredRun

CARD = "MODEL_CARD.md"
SPLIT_WORDS = {
    "in_dist": "new tasks on masks that it trained on",
    "ood": "masks that were held out",
    "control": "tasks of other teachers",
    "control_modules": "tasks of other modules, the same readout",
}


def model_card(run: StoredRun, num_parameters: int) -> str:
    """A page of Markdown. Every number in it is measured, or is of the configuration."""
    task, last = run.config.task, run.last
    scores = {} if last is None else last.splits()
    rows = [f"| {split} | {SPLIT_WORDS[split]} | {score.r2:.3f} |" for split, score in scores.items()]
    lines = [
        f"# {run.model}, trained on {run.support}, seed {run.seed}",
        "",
        f"A model of {num_parameters:,} parameters that solves regression tasks in context, trained by Recombine for "
        f"{0 if last is None else last.step:,} of {run.num_steps:,} steps. An episode has "
        f"{task.episode_length - 1} pairs and a query, inputs of {task.input_dim} numbers, and a task composed of "
        f"{task.num_modules} modules.",
        "",
        "| split | tasks | R² |",
        "|---|---|---|",
        *rows,
        "",
        "R² is 1 for a perfect prediction and 0 for the mean of the context. The model knows only the synthetic tasks "
        "of one teacher, which the seed determines. It is useful only for studying how such models generalise.",
        "",
        "```python",
        "import recombine as rc",
        "",
        f'run = rc.load("{run.path.name}")  # this directory, or ARCHIVE.zip/{run.path.name}',
        'print(rc.predict(run, rc.sample(run, "in_dist", 100)))',
        "```",
        "",
        "The complete configuration:",
        "",
        "```toml",
        write_toml(run.config).rstrip(),
        "```",
        "",
    ]
    return "\n".join(lines)
