"""Tables in HTML, as notebooks show them."""

from collections.abc import Iterable, Sequence
from html import escape


def html_table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a title. The first cell of each row is its name; all text is escaped."""
    headers = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    lines = []
    for first, *rest in rows:
        cells = "".join(f"<td>{escape(str(cell))}</td>" for cell in rest)
        lines.append(f'<tr><th style="text-align:left">{escape(str(first))}</th>{cells}</tr>')
    body = "".join(lines)
    top = f"<thead><tr>{headers}</tr></thead>" if head else ""
    return f"<p>{escape(title)}</p><table>{top}<tbody>{body}</tbody></table>"
