"""The page: valid, safe, self-contained, and usable in a real browser, where there is one."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cocoamix.experiments.report import main
from tests.browser import Browser, find_browser
from tests.experiments.trees import write_pair, write_results

PROGRAM = find_browser()
VOID = {"meta", "link", "br", "img", "input", "hr"}
# Texts whose contrast against their background is below WCAG's 4.5.
ILLEGIBLE = """
(() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((v) => v / 255)
    .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (item) => {
    for (; item; item = item.parentElement) {
      const rgb = numbers(getComputedStyle(item).backgroundColor);
      if (rgb.length < 4 || rgb[3] > 0) return rgb;
    }
    return [255, 255, 255];
  };
  const texts = "h1, h2, h3, p, li, a, th, td, button, td b, .spread, summary, code, svg text";
  return [...document.querySelectorAll(texts)].filter((item) => item.textContent.trim()).map((item) => {
    const style = getComputedStyle(item);
    const colour = item.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const pair = [light(numbers(colour)), light(behind(item))].sort((a, b) => b - a);
    return [(pair[0] + 0.05) / (pair[1] + 0.05), item.tagName + " " + item.textContent.trim().slice(0, 30)];
  }).filter(([ratio]) => ratio < 4.5);
})()
"""
COLUMN = "[...document.querySelector('table').tBodies[0].rows].map((row) => row.cells[1].innerText.trim())"
BUTTON = "document.querySelectorAll('table thead button')[1]"


class Reader(HTMLParser):
    """Collects identifiers and references, and checks that tags are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str | None] = []
        self.references: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open += [] if tag in VOID else [tag]
        self.handle_startendtag(tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value for name, value in attrs if name == "id"]
        self.references += [value for name, value in attrs if name in ("src", "href", "xlink:href", "srcset", "action")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the page of a tree with several sections, a hostile name and a damaged run."""
    root = tmp_path_factory.mktemp("page")
    for dataset, shift in (("EuroSAT", 0.0), ("DTD", -8.0), ("Food101", 5.0)):
        for seed in (1, 2, 3):
            write_pair(root / "tree", 80 + shift + seed, 62 - shift + seed, dataset=dataset, seed=seed)
            write_pair(root / "tree", 82 + shift, 70 + seed, dataset=dataset, seed=seed, trainer="KgCoOp")
    write_pair(root / "tree", 90.0, 66.0, trainer="ProGrad")
    for seed in (1, 2):
        values = [88 + seed / 4 - number for number in range(9)]
        names = {"trainer": "CoOpFSCIL", "dataset": "CIFAR100FSCIL", "subset": "all", "seed": seed}
        write_results(root / f"tree/fscil/CoOpFSCIL/vit_l14/seed{seed}", values[-1], sessions=values, **names)
    (root / "tree/damaged").mkdir()
    (root / "tree/damaged/results.json").write_text("{")
    arguments = ["--baseline", "CoOp", "--paper", "--quiet", "--html", str(root / "page.html")]
    assert main([str(root / "tree"), *arguments, "--name", "KgCoOp/*=<img src=x> </script>"]) == 1
    return root / "page.html"


def test_the_page_is_well_formed_and_self_contained(page: Path) -> None:
    text, reader = page.read_text(encoding="utf-8"), Reader()
    reader.feed(text)
    assert reader.open == []
    assert len(set(reader.ids)) == len(reader.ids)
    assert {name for name in reader.references if name != "data:,"} <= {f"#{name}" for name in reader.ids}
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(reader.ids)
    assert not re.findall(r"@import|url\((?!#)", text)
    assert "default-src 'none'" in text
    assert text.count("<svg") >= 3


def test_names_are_escaped_and_left_out_runs_are_named(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<img" not in text
    assert text.count("</script>") == 1
    assert "&lt;img src=x&gt;" in text
    assert "tree/damaged" in text


@pytest.mark.skipif(PROGRAM is None, reason="no Chromium here")
def test_the_page_sorts_fits_every_screen_and_is_legible(page: Path, tmp_path: Path) -> None:
    assert PROGRAM
    with Browser(PROGRAM, tmp_path / "profile") as browser:
        browser.resize(1200)
        browser.open(page)
        for order in ("descending", "ascending"):
            browser.evaluate(f"{BUTTON}.click()")
            shown = browser.evaluate(COLUMN)
            values = [float(text.split()[0]) for text in shown if text[0].isdigit()]
            assert values == sorted(values, reverse=order == "descending")
            assert not shown[-1][0].isdigit()  # missing values are last
            assert browser.evaluate(f"{BUTTON}.parentElement.ariaSort") == order
        for width in (360, 768, 1200):
            browser.resize(width)
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
            assert browser.evaluate("parseFloat(getComputedStyle(document.querySelector('td')).fontSize)") >= 14
        for scheme, paper in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(18, 23, 29)")):
            browser.prefer(scheme)
            assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == paper
            assert browser.evaluate(ILLEGIBLE) == []
        assert browser.complaints == []  # such as what the Content-Security-Policy blocks
