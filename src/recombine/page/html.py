"""HTML elements that several pages share: tables, verdict badges, embedded data."""

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from recombine.study.wording import VERDICT_MARKS, mean_and_band

BADGES = {"holds": "good", "does not hold": "bad", "not enough data": "open"}


def table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """A table. Cells are already HTML; the first cell of a row is its header."""
    headers = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    lines = []
    for first, *rest in rows:
        cells = "".join(f'<td data-label="{title}">{cell}</td>' for title, cell in zip(head[1:], rest, strict=True))
        lines.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    body = "\n".join(lines)
    inside = f"<thead><tr>{headers}</tr></thead>\n<tbody>{body}</tbody>"
    return scrolled(f"Table: {', '.join(head)}", f'<table class="{kind}">{inside}</table>')


def scrolled(label: str, content: str) -> str:
    """A region that the keyboard can scroll; so it needs a name. `label` and `content` are already HTML."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">{content}</div>'


def badge(state: str, lean: str = "") -> str:
    """A verdict; hollow where too few seeds only lean to one."""
    if lean:
        return f'<span class="badge hollow">{escape(lean)}</span>'
    kind, mark = BADGES.get(state, "open"), VERDICT_MARKS.get(state, "?")
    return f'<span class="badge {kind}"><span aria-hidden="true">{mark}</span> {escape(state)}</span>'


def html_with_band(values: Sequence[float]) -> str:
    """The mean and the band, '0.912 [0.902, 0.921]', with the band in small type."""
    mean, band = mean_and_band(values)
    return f"{mean} <small>{band}</small>" if band else mean


def embed_json(data: Any) -> str:
    """JSON that is safe inside a script element, whatever strings it contains."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text
