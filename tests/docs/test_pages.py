"""Links and images of the pages, on GitHub and on the site, and the citation file."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import cocoamix
from tests.conftest import ROOT

from .pages import PAGES, name_of

EACH = pytest.mark.parametrize("page", PAGES, ids=name_of)
FENCE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
IMAGE = re.compile(r"(?:!\[[^\]]*\]\(|src=\"|srcset=\")([^)\"\s]+)")
# What draws an image: a figure, a sheet of drawn images, a report, a script.
DRAWS = re.compile(r"cocoamix (?:figures|shapes|report|bench run) \S+|python (?:scripts|benchmarks)/\w+\.py")


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", lambda match: match[1] or "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", text, re.M)}


@EACH
def test_links_resolve(page: Path) -> None:
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if link.startswith("http"):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.is_file(), link
        assert not anchor or anchor in anchors(target), link


@EACH
def test_images_exist_and_name_the_command_that_draws_them(page: Path) -> None:
    """The command is in the section of the image; each light figure also has a dark one."""
    for section in re.split(r"^#+ ", page.read_text(encoding="utf-8"), flags=re.M):
        for image in IMAGE.findall(BLOCK.sub("", section)):
            assert (page.parent / image).is_file(), image
            assert DRAWS.search(section), f"no command near {image}"
        for light in re.findall(r"<img src=\"([^\"]+)\"", BLOCK.sub("", section)):
            path = Path(light)
            dark = path.with_name(f"{path.stem}-dark{path.suffix}").as_posix()
            assert f'srcset="{dark}"' in section, f"no dark image beside {light}"


@EACH
def test_pictures_stay_whole_on_github(page: Path) -> None:
    """GitHub ends a paragraph at <source>: text after <picture> would leave its dark image outside the element."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    assert text.count("<picture>") == len(re.findall(r"^<picture>$", text, re.M))


def test_every_image_is_shown() -> None:
    shown = {(page.parent / image).resolve() for page in PAGES for image in IMAGE.findall(page.read_text())}
    kept = {path.resolve() for path in (ROOT / "docs" / "images").rglob("*") if path.is_file()}
    assert kept == shown & kept


@pytest.fixture(scope="module")
def site_pages() -> ModuleType:
    """The hook with which the site is built."""
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "scripts" / "site_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("source", "text", "wanted"),
    [
        ("README.md", "[a](docs/METHOD.md#formulas)", "[a](METHOD.md#formulas)"),
        ("README.md", "[a](CONTRIBUTING.md)", "[a](CONTRIBUTING.md)"),
        ("README.md", '<img src="docs/images/a.svg">', '<img src="images/a.svg">'),
        ("docs/API.md", "[a](../CONTRIBUTING.md)", "[a](CONTRIBUTING.md)"),
        ("docs/METHOD.md", "[a](../README.md#result)", "[a](index.md#result)"),
        ("docs/METHOD.md", "[a](#result) `[b](../README.md)`", "[a](#result) `[b](../README.md)`"),
        ("cocoamix/assets/README.md", "[a](../../docs/TINY.md)", "[a](TINY.md)"),
        ("docs/A.md", "[a](https://example.org/docs/x.md)", "[a](https://example.org/docs/x.md)"),
    ],
)
def test_links_are_rewritten_for_the_site(site_pages: ModuleType, source: str, text: str, wanted: str) -> None:
    assert site_pages.turn_links(text, source) == wanted


def test_images_follow_the_colour_mode_of_the_site(site_pages: ModuleType) -> None:
    text = '<picture>\n<source media="x" srcset="a-dark.svg">\n  <img src="a.svg" width="9" alt="b"></picture>'
    light, dark = re.findall(r"<img [^>]*>", site_pages.show_modes(text))
    assert 'src="a.svg#only-light"' in light
    assert 'src="a-dark.svg#only-dark"' in dark
    assert all('width="9"' in image and 'alt="b"' in image for image in (light, dark))
    code = f"```html\n{text}\n```\n"
    assert site_pages.show_modes(code) == code


@pytest.mark.parametrize(
    ("cell", "wanted"),
    [
        ("<td>85.33 ± 0.26</td>", '<td class="number">85.33 ± 0.26</td>'),
        ('<td style="text-align: right;">7</td>', '<td class="number" style="text-align: right;">7</td>'),
        ("<td><code>a/b</code></td>", "<td><code>a/<wbr>b</code></td>"),
        ('<td><a href="a/b.html">CoOp</a></td>', '<td><a href="a/b.html">CoOp</a></td>'),
        ("<td><code><a>str</a>/x</code></td>", "<td><code><a>str</a>/x</code></td>"),
        ("<code>run --dry-run a-b</code>", '<code>run <span class="option">--dry-run</span> a-b</code>'),
        (f"<td>{'word ' * 9}</td>", f'<td class="wordy">{"word " * 9}</td>'),
    ],
)
def test_cells_and_code_wrap_by_their_kind(site_pages: ModuleType, cell: str, wanted: str) -> None:
    assert site_pages.on_page_content(cell) == wanted


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 120


def test_citation() -> None:
    """CITATION.cff has what version 1.2.0 of the format requires, and the README's BibTeX agrees with it."""
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert found["cff-version"] == "1.2.0"
    assert found["version"] == cocoamix.__version__
    paper = found["preferred-citation"]
    assert {"message", "title", "authors"} <= set(found)
    assert {"type", "title", "authors"} <= set(paper)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    authors = " and ".join(f"{one['family-names']}, {one['given-names']}" for one in paper["authors"])
    assert f"author    = {{{authors}}}" in readme
    assert paper["title"] in readme.replace("{{CoCoA-Mix}", "{CoCoA-Mix").replace("{CoCoA-Mix:", "CoCoA-Mix:")
    assert f"{{{found['title']}}}" in readme
    assert f"year      = {{{paper['year']}}}" in readme
