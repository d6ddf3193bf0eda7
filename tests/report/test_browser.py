"""The page in a real browser. Skipped without Chromium."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cocoamix.report.build import Options, build
from cocoamix.report.render.html import render
from tests.experiments.browser import Browser, find_browser
from tests.report.test_page import write_everything

PROGRAM = find_browser()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here")

# Cells of the first table whose title starts like this, as rows of text.
ROWS = """
(title) => {
  const head = [...document.querySelectorAll("h3")].find((one) => one.textContent.startsWith(title));
  const table = document.querySelector(`[aria-labelledby="${head.id}"] table`);
  return [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.innerText.trim()));
}
"""
BUTTON = """
(title, name) => {
  const head = [...document.querySelectorAll("h3")].find((one) => one.textContent.startsWith(title));
  const table = document.querySelector(`[aria-labelledby="${head.id}"] table`);
  return [...table.querySelectorAll("thead button")].find((one) => one.textContent === name);
}
"""
# Contrast of the text of every element against its actual background (WCAG 2).
CONTRAST = """
() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((v) => v / 255)
    .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const rgb = numbers(getComputedStyle(one).backgroundColor);
      if (rgb.length < 4 || rgb[3] > 0) return rgb;
    }
    return [255, 255, 255];
  };
  const bad = [];
  const texts = "h1, h2, h3, p, li, a, th, td, button, td b, .std, .sign, summary, code, svg text";
  for (const one of document.querySelectorAll(texts)) {
    if (!one.textContent.trim()) continue;
    const style = getComputedStyle(one);
    const colour = one.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const pair = [light(numbers(colour)), light(behind(one))].sort((a, b) => b - a);
    const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (ratio < 4.5) bad.push(`${one.tagName} ${one.textContent.trim().slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return bad;
}
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("browser")
    write_everything(root / "tree")
    (root / "tree/damaged").mkdir()
    (root / "tree/damaged/results.json").write_text("{")
    (root / "page.html").write_text(render(build([root / "tree"], Options(baseline="CoOp", paper=True))))
    return root / "page.html"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert PROGRAM is not None
    with Browser(PROGRAM, tmp_path_factory.mktemp("profile")) as one:
        yield one


@pytest.fixture
def browser(running: Browser, page: Path) -> Iterator[Browser]:
    running.resize(1200)
    running.prefer("light")
    running.open(page)
    yield running
    assert running.complaints == []


def rows(browser: Browser, title: str) -> list[list[str]]:
    found: list[list[str]] = browser.evaluate(f"({ROWS})({title!r})")
    return found


def column(browser: Browser, title: str, place: int) -> list[float]:
    shown = [row[place].split()[0] for row in rows(browser, title)]
    return [float(text) for text in shown if re.match(r"^[\d.]+$", text)]


def test_page_loads_without_errors(browser: Browser) -> None:
    assert browser.evaluate("document.querySelectorAll('table').length") > 5
    assert browser.evaluate("document.querySelectorAll('svg').length") >= 4
    browser.evaluate("new Promise((done) => setTimeout(done, 100))")
    assert browser.complaints == []


def test_columns_sort_both_ways_with_missing_values_last(browser: Browser) -> None:
    title = "Average over 3"
    before = column(browser, title, 1)
    assert before != sorted(before, reverse=True)
    browser.evaluate(f"({BUTTON})({title!r}, 'base').click()")
    after = column(browser, title, 1)
    assert after == sorted(before, reverse=True)
    assert rows(browser, title)[-1][1].startswith("\u2013")
    assert browser.evaluate(f"({BUTTON})({title!r}, 'base').parentElement.ariaSort") == "descending"
    assert browser.evaluate("document.getElementById('spoken').textContent") == "Sorted by base, descending"
    browser.evaluate(f"({BUTTON})({title!r}, 'base').click()")
    assert column(browser, title, 1) == sorted(before)
    assert rows(browser, title)[-1][1].startswith("\u2013")
    browser.evaluate(f"({BUTTON})({title!r}, 'method').click()")
    names = [row[0].lower() for row in rows(browser, title)]
    assert names == browser.evaluate(f"{names!r}.sort((a, b) => a.localeCompare(b))")
    assert browser.evaluate(f"({BUTTON})({title!r}, 'base').parentElement.ariaSort") == "none"


@pytest.mark.parametrize(("key", "code", "text"), [("Enter", 13, "\r"), (" ", 32, " ")])
def test_columns_sort_by_keyboard(browser: Browser, key: str, code: int, text: str) -> None:
    title = "EuroSAT"
    browser.evaluate(f"({BUTTON})({title!r}, 'base').focus()")
    browser.press("Tab", 9)
    assert browser.evaluate("document.activeElement.textContent") == "new"
    browser.press(key, code, text)
    values = column(browser, title, 2)
    assert values == sorted(values, reverse=True)
    outline = browser.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


@pytest.mark.parametrize("width", [360, 768, 1200])
def test_nothing_overflows_the_page(browser: Browser, width: int) -> None:
    browser.resize(width)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    # Wide tables scroll in their own frame, which the keyboard reaches.
    assert browser.evaluate("[...document.querySelectorAll('.scroll')].every((one) => one.tabIndex === 0)")


def test_text_is_legible_on_a_phone(browser: Browser) -> None:
    browser.resize(360)
    smallest = browser.evaluate(
        "Math.min(...[...document.querySelectorAll('svg text')].map((one) => one.getBoundingClientRect().height))"
    )
    assert smallest >= 9
    assert browser.evaluate("parseFloat(getComputedStyle(document.querySelector('td')).fontSize)") >= 14


@pytest.mark.parametrize("size", [(1280, 900), (360, 740)])
def test_averages_are_in_view_without_scrolling(browser: Browser, size: tuple[int, int]) -> None:
    browser.resize(*size)
    bottoms = browser.evaluate(
        "[...document.querySelector('table').rows].map((row) => row.getBoundingClientRect().bottom)"
    )
    assert rows(browser, "Average over 3")[2][0] == "KgCoOp"
    assert bottoms[3] < size[1]


def test_notes_open_on_click(browser: Browser) -> None:
    assert browser.evaluate("document.querySelector('.notice li').checkVisibility()") is False
    browser.evaluate("document.querySelector('.notice summary').click()")
    assert browser.evaluate("document.querySelector('.notice li').checkVisibility()") is True


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_sufficient_contrast(browser: Browser, scheme: str) -> None:
    browser.prefer(scheme)
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    assert browser.evaluate(f"({CONTRAST})()") == []
