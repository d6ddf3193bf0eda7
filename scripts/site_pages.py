"""An mkdocs hook: pages from outside docs/, images that follow the light or dark mode, code and cells that wrap well.

README.md and similar files stay where GitHub shows them. The site has them as pages, with rewritten links.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parents[1]

# The pages on the site, by the file in the tree.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "benchmarks/README.md": "BENCHMARK_SCRIPTS.md",
    "cocoamix/assets/README.md": "TINY_CARD.md",
}
# Files that pages link to. The site serves them unchanged.
PLAIN = ("CITATION.cff",)

LINK = re.compile(r"(\]\(|src=\"|srcset=\")([^)\"\s#:]+)(#[^)\"\s]*)?(?=[)\"])")
FENCE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(
    r"<picture>\s*<source[^>]*srcset=\"(?P<dark>[^\"]+)\"[^>]*>\s*"
    r"<img (?P<before>[^>]*?)src=\"(?P<light>[^\"]+)\"(?P<after>[^>]*)>\s*</picture>"
)
FILE_NAME = re.compile(r"\[(?:docs/)?(?P<file>[A-Z_]+\.md)\](?=\((?P=file)[)#])")
CELL = re.compile(r"<td(?P<style> style=\"[^\"]*\")?>(?P<content>.*?)</td>", re.DOTALL)
# Code of the API page has links inside and is not changed.
CODE = re.compile(r"<code(?P<kind> class=\"whole\")?>(?P<text>(?:[^<]|<wbr>)*)</code>")
BLOCK = re.compile(r"(?<=<div class=\"language-bash highlight\">).*?(?=</div>)", re.DOTALL)
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*(?![^<>]*>)")
TAG = re.compile(r"<[^>]*>")
NUMBER = re.compile("[-+\N{MINUS SIGN}±]?\\d.{0,19}")  # "85.33 ± 0.26", "6.4x (6.3 to 6.5)"
SHORT = 14  # characters of a cell that stays on one line
WORDY = 40  # characters of a cell that needs some width
WHOLE = 30  # characters of code that stays on one line; in cells, longer paths may break at their slashes


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and files that live outside docs/."""
    from mkdocs.structure.files import File  # here, so that tests can import this file without mkdocs

    for source, page in PAGES.items():
        text = turn_links((ROOT / source).read_text(encoding="utf-8"), source)
        files.append(File.generated(config, page, content=text))
    for name in PLAIN:
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Rewrite links to files outside docs/, show one image in each mode, and hide an empty navigation."""
    if page.file.src_uri not in PAGES.values():
        markdown = turn_links(markdown, f"docs/{page.file.src_uri}")
    markdown = name_pages(markdown, titles(config["nav"]))
    if page.parent is None:  # alone below its tab: no neighbours to list, so its wide tables get the room
        page.meta.setdefault("hide", ["navigation"])
    return show_modes(markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Mark what site.css keeps on one line: numbers in cells; names and options, which must not break at a hyphen."""
    html = CELL.sub(mark_cell, html)
    html = CODE.sub(mark_name, html)
    return BLOCK.sub(lambda block: mark_options(block[0]), html)


def mark_cell(match: re.Match[str]) -> str:
    """Return a cell with its kind: a `number` and a `short` text do not wrap, a `wordy` cell is not narrow."""
    text = TAG.sub("", match["content"]).strip()
    if NUMBER.fullmatch(text):
        kind = "number"
    else:
        kind = "wordy" if len(text) > WORDY else "short" if 0 < len(text) <= SHORT else ""
    name = f' class="{kind}"' if kind else ""
    return f"<td{name}{match['style'] or ''}>{CODE.sub(mark_code, match['content'])}</td>"


def mark_code(match: re.Match[str]) -> str:
    """Return the code of a cell: if it is short, it does not wrap; a long path may break at its slashes."""
    text = match["text"]
    if len(text) <= WHOLE:
        return f'<code class="whole">{text}</code>'
    return f"<code>{text.replace('/', '/<wbr>') if max(map(len, text.split())) > WHOLE else text}</code>"


def mark_name(match: re.Match[str]) -> str:
    """Return code with its options marked. A short name does not wrap; several words may, between them."""
    text = match["text"]
    kind = match["kind"] or (' class="whole"' if len(text) <= WHOLE and " " not in text else "")
    return f"<code{kind}>{mark_options(text)}</code>"


def mark_options(text: str) -> str:
    """Return code with its options, such as --dry-run, each in a separate element."""
    return OPTION.sub(r'<span class="option">\g<0></span>', text)


def titles(entries: list[Any]) -> dict[str, str]:
    """Return the titles of the pages in the navigation, by file."""
    found: dict[str, str] = {}
    for entry in entries:
        for title, below in entry.items() if isinstance(entry, dict) else ():
            found |= titles(below) if isinstance(below, list) else {below: title}
    return found


def name_pages(text: str, names: dict[str, str]) -> str:
    """Return the text of a page, in which links that show the name of a file show the title of its page instead."""
    return FILE_NAME.sub(lambda match: f"[{names.get(match['file'], match['file'])}]", text)


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
