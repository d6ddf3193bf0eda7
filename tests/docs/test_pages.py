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
# What draws an image: a figure, a sheet of synthetic images, a report, a script.
OPTION = '<span class="option">-c</span>'  # on the site
BLOCK_OF_COMMANDS = '<div class="language-bash highlight"><a id="b -c">a {}</a></div>'
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
    """The command is in the section of the image."""
    for section in re.split(r"^#+ ", page.read_text(encoding="utf-8"), flags=re.M):
        for image in IMAGE.findall(BLOCK.sub("", section)):
            assert (page.parent / image).is_file(), image
            assert DRAWS.search(section), f"no command near {image}"


@EACH
def test_picture_elements_stand_on_lines_of_their_own(page: Path) -> None:
    """GitHub ends a paragraph at <source>: text after <picture> would leave its dark image outside the element."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    assert text.count("<picture>") == len(re.findall(r"^<picture>$", text, re.M))


def test_every_image_is_shown() -> None:
    shown = {(page.parent / image).resolve() for page in PAGES for image in IMAGE.findall(page.read_text())}
    kept = {path.resolve() for path in (ROOT / "docs" / "images").rglob("*") if path.is_file()}
    assert kept == shown & kept


def load_hook(name: str) -> ModuleType:
    """Load a hook with which the site is built."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site_pages() -> ModuleType:
    return load_hook("site_pages")


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
        ("<td><code>a/b -c</code>, or an other</td>", f'<td><code class="whole">a/b {OPTION}</code>, or an other</td>'),
        (f"<td><code>{'a/' * 16}</code></td>", f"<td><code>{'a/<wbr>' * 16}</code></td>"),
        (f"<td><code>{'a/b ' * 9}</code></td>", f"<td><code>{'a/b ' * 9}</code></td>"),
        ('<td><a href="a/b.html">CoOp</a></td>', '<td class="short"><a href="a/b.html">CoOp</a></td>'),
        ("<td><code><a>str</a>/x</code></td>", '<td class="short"><code><a>str</a>/x</code></td>'),
        ("<code>run -c a-c</code>", f"<code>run {OPTION} a-c</code>"),
        ("<code>KEY-dark.svg</code>", '<code class="whole">KEY-dark.svg</code>'),
        (f"<code>{'a-' * 16}</code>", f"<code>{'a-' * 16}</code>"),
        (BLOCK_OF_COMMANDS.format("-c"), BLOCK_OF_COMMANDS.format(OPTION)),
        (f"<td>{'word ' * 9}</td>", f'<td class="wordy">{"word " * 9}</td>'),
    ],
)
def test_cells_and_code_wrap_according_to_their_kind(site_pages: ModuleType, cell: str, wanted: str) -> None:
    assert site_pages.on_page_content(cell) == wanted


def test_links_show_titles_instead_of_file_names(site_pages: ModuleType) -> None:
    names = site_pages.titles([{"Start": ["index.md", {"All keys": "KEYS.md"}]}, {"The paper": "PAPER.md"}])
    assert names == {"KEYS.md": "All keys", "PAPER.md": "The paper"}
    text = "[docs/KEYS.md](KEYS.md#a) [PAPER.md](PAPER.md) [the keys](KEYS.md) [KEYS.md](https://example.org/KEYS.md)"
    wanted = "[All keys](KEYS.md#a) [The paper](PAPER.md) [the keys](KEYS.md) [KEYS.md](https://example.org/KEYS.md)"
    assert site_pages.name_pages(text, names) == wanted


@pytest.mark.parametrize(
    ("html", "wanted"),
    [
        ("<p>π^in, w_c^zs, L_Ent</p>", "<p>π<sup>in</sup>, w<sub>c</sub><sup>zs</sup>, L<sub>Ent</sub></p>"),
        ("s_0/τ_0, h(A_i)_c", "s<sub>0</sub>/τ<sub>0</sub>, h(A<sub>i</sub>)<sub>c</sub>"),
        ("sum_i pi_i^out, 10^-6", "Σ<sub>i</sub> π<sub>i</sub><sup>out</sup>, 10<sup>-6</sup>"),
        ("<code>π^in</code>", '<code class="formula">π<sup>in</sup></code>'),
        ('<code class="whole">p(y)</code>', '<code class="formula whole">p(y)</code>'),
        ("T_En and N_CTX and open_clip", "T<sub>En</sub> and N_CTX and open_clip"),
        ("<code>pi^in</code>, the name of a row", "<code>pi^in</code>, the name of a row"),
        ('<img alt="π^in"> <pre>π^in w_c</pre>', '<img alt="π^in"> <pre>π^in w_c</pre>'),
        ('<h5 id="pi" class="doc doc-heading"><span>pi</span></h5>',) * 2,
    ],
)
def test_formulas_are_typeset_on_the_site(html: str, wanted: str) -> None:
    assert load_hook("site_formulas").typeset(html) == wanted


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 120


def test_citation_file_agrees_with_the_readme() -> None:
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
