"""Hooks of `make site`: what the site has besides docs/.

The README is the front page, below the explorable page. Notebooks become pages. A link from the docs to any other file
of the repository leads to a copy of that file in the site. Nothing in the site may be loaded from elsewhere.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
PAGES = {  # pages that are not in docs/, by their name in the site
    "index.md": "README.md",
    "evidence.md": "evidence/README.md",
    "benchmarks.md": "benchmarks/README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
} | {f"notebooks/{path.stem}.md": f"notebooks/{path.name}" for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}
EXPLORE = "explore.html"
FRONT = f"""<iframe src="{EXPLORE}" title="The finding, with the trained models" loading="lazy"
style="width: 100%; height: 56rem; border: 1px solid #8884; border-radius: 6px"></iframe>

*[The same page on its own]({EXPLORE}). The trained models run in it; nothing is loaded or sent.*

"""
LINK = re.compile(r"(\]\()([^)\s]+)(\))|(<img src=\")([^\"]+)(\")")
LOADED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?([^\"'\s>]+)|<link\b[^>]*\bhref=[\"']?([^\"'\s>]+)"
)
IN_STYLE = re.compile(r"(?:url\(|@import\s+)[\"']?([^\"')\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/, the explorable page, and every file that a page links to."""
    from recombine.story.pack import demo_story
    from recombine.story.static_page import static_page

    for name, source in PAGES.items():
        files.append(File.generated(config, name, content=_text(ROOT / source)))
    files.append(File.generated(config, EXPLORE, content=static_page(demo_story())))
    for source in [*PAGES.values(), *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]:
        for link in LINK.finditer(_text(ROOT / source)):
            target = _target(source, link[2] or link[5])
            if target is not None and _is_copied(target, source):
                name = _copy(target)
                if files.get_file_from_path(name) is None:
                    files.append(File.generated(config, name, content=(ROOT / target).read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point the links of a page to the places that the files have in the site."""
    name = page.file.src_uri
    source = PAGES.get(name, f"docs/{name}")
    up = "../" * name.count("/")

    def moved(link: re.Match[str]) -> str:
        before, url, after = (link[1], link[2], link[3]) if link[2] else (link[4], link[5], link[6])
        target = _target(source, url)
        if target is None:
            return link[0]
        pages = {source: name for name, source in PAGES.items()}
        place = _copy(target) if _is_copied(target, source) else pages.get(target, target.removeprefix("docs/"))
        return f"{before}{up}{place}{'#' + urldefrag(url)[1] if '#' in url else ''}{after}"

    text = LINK.sub(moved, markdown)
    return text.replace("\n\n", f"\n\n{FRONT}", 1) if name == "index.md" else text


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site that would load anything from elsewhere, or that links to a file that it does not have."""
    site = Path(config.site_dir)
    wrong = []
    for path in site.rglob("*"):
        if path.suffix not in (".html", ".css"):
            continue
        text = path.read_text(encoding="utf-8")
        loaded = LOADED.findall(text) if path.suffix == ".html" else [(url, "") for url in IN_STYLE.findall(text)]
        for url in ("".join(both) for both in loaded):
            if re.match(r"(https?:)?//", url):
                wrong.append(f"{path.relative_to(site)} loads {url}")
    if wrong:
        raise PluginError("the site would load from elsewhere: " + "; ".join(sorted(set(wrong))))


def _target(source: str, url: str) -> str | None:
    """The file of the repository that a link leads to. None for an address elsewhere, and within the page."""
    path = urldefrag(url)[0]
    if not path or re.match(r"[a-z]+:", path):
        return None
    target = (ROOT / source).parent.joinpath(path).resolve()
    return target.relative_to(ROOT).as_posix() if target.is_file() and target.is_relative_to(ROOT) else None


def _is_copied(target: str, source: str) -> bool:
    """Whether a link from `source` leads to a copy of a file: it is no page, or a notebook that links to itself."""
    return target == source or (target not in PAGES.values() and not target.startswith("docs/"))


def _copy(target: str) -> str:
    """The name in the site of a file outside docs/. Code gets another ending, so that browsers show it."""
    return f"files/{target}" + (".txt" if target.endswith((".py", ".toml", ".cff")) else "")


def _text(source: Path) -> str:
    """The Markdown of a page; of a notebook, its cells."""
    text = source.read_text(encoding="utf-8")
    if source.suffix != ".ipynb":
        return text
    cells = [_cell(cell) for cell in json.loads(text)["cells"]]
    cells.insert(1, f"*This page is a [notebook]({source.name}). Run it to see the figures.*")
    return "\n\n".join(cells)


def _cell(cell: dict[str, Any]) -> str:
    text = "".join(cell["source"])
    return text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"
