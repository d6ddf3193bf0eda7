"""An mkdocs hook: pages that live outside docs/, images that follow the light or dark mode, and cells that wrap well.

README.md and similar files stay where GitHub shows them. The site has them as pages, with their links rewritten.
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
    r"<picture>\s*<source[^>]*srcset=\"(?P<dark>[^\"]+)\"[^>]*>\s*"
    r"<img (?P<before>[^>]*?)src=\"(?P<light>[^\"]+)\"(?P<after>[^>]*)>\s*</picture>"
)
CELL = re.compile(r"<td(?P<style> style=\"[^\"]*\")?>(?P<content>.*?)</td>", re.DOTALL)
CODE = re.compile(r"<code>((?:[^<]|<wbr>)*)</code>")  # in text; that of the API page has links inside
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
TAG = re.compile(r"<[^>]*>")
NUMBER = re.compile("[-+\N{MINUS SIGN}±]?\\d.{0,19}")  # "85.33 ± 0.26", "6.4x (6.3 to 6.5)"
WORDY = 40  # characters of a cell that needs some width


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
    """Rewrite links to files outside docs/, show one image in each mode, and hide an empty navigation."""
    if page.file.src_uri not in PAGES.values():
        markdown = turn_links(markdown, f"docs/{page.file.src_uri}")
    if page.parent is None:  # alone below its tab: no neighbours to list, so its wide tables get the room
        page.meta.setdefault("hide", ["navigation"])
    return show_modes(markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Mark what site.css keeps in one line: a number in a cell, and an option in code, which may break at no hyphen."""
    return CODE.sub(mark_options, CELL.sub(mark_cell, html))


def mark_cell(match: re.Match[str]) -> str:
    """Return a cell with its kind: a `number` does not wrap, a `wordy` cell gets some width. Paths break at slashes."""
    text = TAG.sub("", match["content"]).strip()
    kind = "number" if NUMBER.fullmatch(text) else "wordy" if len(text) > WORDY else ""
    content = CODE.sub(lambda code: f"<code>{code[1].replace('/', '/<wbr>')}</code>", match["content"])
    name = f' class="{kind}"' if kind else ""
    return f"<td{name}{match['style'] or ''}>{content}</td>"


def mark_options(match: re.Match[str]) -> str:
    """Return code with its options, such as --dry-run, each in an element of its own."""
    return "<code>" + OPTION.sub(r'<span class="option">\g<0></span>', match[1]) + "</code>"


def turn_links(text: str, source: str) -> str:
    """Return the text of a file of the tree, with its links rewritten for the site.

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


def show_modes(text: str) -> str:
    """Return the text of a page with its <picture> elements as two images. Those in code stay, for readers to copy."""
    parts = FENCE.split(text)
    return "".join(part if number % 2 else PICTURE.sub(both_modes, part) for number, part in enumerate(parts))


def both_modes(match: re.Match[str]) -> str:
    """Return the two images of a <picture> element: the theme shows one of them, in the mode that the reader chose."""
    rest = f"{match['before']}{match['after']}".strip()
    return f'<img src="{match["light"]}#only-light" {rest}><img src="{match["dark"]}#only-dark" {rest}>'
