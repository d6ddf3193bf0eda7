"""A hook of mkdocs: pages of the site that live outside docs/, and images that follow the site's light or dark mode.

README.md and its like stand where GitHub shows them. The site has them as pages, with their links turned to it.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parents[1]

# By file of the tree: its page on the site.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "benchmarks/README.md": "BENCHMARK_SCRIPTS.md",
    "cocoamix/assets/README.md": "TINY_CARD.md",
}
# Files that pages link to and the site offers as they are.
PLAIN = ("CITATION.cff",)

LINK = re.compile(r"(\]\(|src=\"|srcset=\")([^)\"\s#:]+)(#[^)\"\s]*)?(?=[)\"])")
FENCE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(
    r"<picture>(?:<!--.*?-->)?\s*<source[^>]*srcset=\"(?P<dark>[^\"]+)\"[^>]*>\s*"
    r"<img (?P<before>[^>]*?)src=\"(?P<light>[^\"]+)\"(?P<after>[^>]*)>\s*</picture>"
)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and files that live outside docs/."""
    from mkdocs.structure.files import File  # here, so that tests can import this file without mkdocs

    for source, page in PAGES.items():
        text = turn_links((ROOT / source).read_text(encoding="utf-8"), source)
        files.append(File.generated(config, page, content=text))
    for name in PLAIN:
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links of a page of docs/ to files outside, and show one image in each mode."""
    if page.file.src_uri not in PAGES.values():
        markdown = turn_links(markdown, f"docs/{page.file.src_uri}")
    return PICTURE.sub(both_modes, markdown)


def turn_links(text: str, source: str) -> str:
    """Return the text of a file of the tree with the links that it has as a page of the site.

    Args:
        text: The Markdown text.
        source: The file's path below the tree.
    """
    folder = posixpath.dirname(source)

    def turn(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[2]))
        target = PAGES.get(target, target.removeprefix("docs/"))
        return f"{match[1]}{target}{match[3] or ''}"

    parts = FENCE.split(text)
    return "".join(part if number % 2 else LINK.sub(turn, part) for number, part in enumerate(parts))


def both_modes(match: re.Match[str]) -> str:
    """Return the two images of a <picture> element: the theme shows one of them, in the mode that the reader chose."""
    rest = f"{match['before']}{match['after']}".strip()
    return f'<img src="{match["light"]}#only-light" {rest}><img src="{match["dark"]}#only-dark" {rest}>'
