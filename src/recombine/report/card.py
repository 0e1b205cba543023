"""The scorecard of a run, for the terminal."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from recombine.report.tables import number, print_scores


def print_card(path: str, card: dict[str, Any]) -> None:
    """Tables: splits beside the references, masks, probe, active modules, modules, interventions."""
    title = f"{path}: {card['model']} on {card['support']}, seed {card['seed']}, "
    title += f"step {card['step']:,} of {card['num_steps']:,}"
    print_scores(title, {card["model"]: card}, card["references"])
    masks = {
        f"{split} {mask}": entry
        for split in ("in_dist", "ood")
        for mask, entry in sorted(card.get(split, {}).get("masks", {}).items(), reverse=True)
    }
    _print("by mask", ["R²", "episodes"], {name: [_r2(e), str(e["episodes"])] for name, e in masks.items()})
    if probe := card.get("probe"):
        points = ["embedding", *(f"block {i}" for i in range(1, len(probe["in_dist"])))]
        columns = [split for split in ("in_dist", "ood") if split in probe]
        rows = {name: [number(probe[split][i]) for split in columns] for i, name in enumerate(points)}
        if probe.get("latent"):
            rows["latent"] = [number(probe["latent"][split]) for split in columns]
        _print("the latent, linearly decoded", columns, rows)
    ks = card["active_modules"]
    shown = ("ridge", "oracle")
    _print(
        "by active modules",
        [card["model"], *shown],
        {
            k: [_r2(entry), *(_r2(card["references"][name]["active_modules"][k]) for name in shown)]
            for k, entry in ks.items()
        },
    )
    if modules := card.get("modules"):
        entries = modules["single"] + modules["pairs"]
        rows = {
            entry["mask"]: [_r2(entry), number(entry["ceiling"]), "trained" if entry["trained"] else ""]
            for entry in entries
        }
        _print(f"modules recovered (map R² {modules['map_r2']:.3f})", ["explained", "ceiling", ""], rows)
    if found := card.get("interventions"):
        if found["kind"] == "latent":
            columns = [name for name in ("in_dist", "ood") if name in found]
            kinds = list(found[columns[0]])
            _print("latent replaced", columns, {kind: [number(found[c][kind]) for c in columns] for kind in kinds})
        else:
            rows = {}
            for entry in found["points"]:
                for kind in entry["in_dist"]:
                    rows[f"block {entry['point']}: {kind}"] = [
                        number(entry[c][kind]) for c in ("in_dist", "ood") if c in entry
                    ]
            columns = [c for c in ("in_dist", "ood") if c in found["points"][0]]
            _print("the probe's subspace set", columns, rows)


def _print(title: str, columns: list[str], rows: dict[str, list[str]]) -> None:
    console = Console(highlight=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(title)
    for column in columns:
        table.add_column(column, justify="right")
    for name, cells in rows.items():
        table.add_row(Text(name), *cells)
    console.print(table)


def _r2(entry: dict[str, Any]) -> str:
    return number(entry["r2"])
