"""The page of predictions, as a file and in a real browser. The latter is skipped where no Chromium is found."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from PIL import Image

from cocoamix.predict.page import Page
from cocoamix.run.predictions import Record
from tests.report.browser import Browser, find_browser

PROGRAM = find_browser()
NASTY = '</script><script>document.title = "owned"</script><img src=x onerror="document.title=\'owned\'">'


def write_page(folder: Path, nasty: str = NASTY) -> Path:
    """Write a page of four images, two of them mistakes, with names that would like to run."""
    image = folder / "red.png"
    Image.new("RGB", (40, 20), "red").save(image)
    text = io.StringIO()
    page = Page(text, f"Title {nasty}", [f"Lead {nasty}"], upright=False)
    for number, (label, predicted) in enumerate([("cat", "cat"), ("cat", nasty), ("dog", "dog"), ("dog", nasty)]):
        top = ((predicted, 0.9 - number / 10), ("bird", 0.05))
        page.add(Record(str(image) if number else f"{nasty}.png", label, predicted, 0.9 - number / 10, 0.9, top))
    page.end()
    path = folder / "page.html"
    path.write_text(text.getvalue(), encoding="utf-8")
    return path


def test_data_cannot_leave_the_script(tmp_path: Path) -> None:
    text = write_page(tmp_path).read_text()
    assert NASTY not in text
    (content,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    data = json.loads(content)
    assert [one["predicted"] for one in data["images"]] == ["cat", NASTY, "dog", NASTY]
    assert data["images"][1]["thumbnail"].startswith("data:image/jpeg;base64,")
    assert "thumbnail" not in data["images"][0]  # there is no such file
    assert not re.search(r'(?:src|href)="(?!data:)', text)


@pytest.mark.skipif(PROGRAM is None, reason="no Chromium here")
def test_in_a_browser(tmp_path: Path) -> None:
    assert PROGRAM is not None
    path = write_page(tmp_path)
    with Browser(PROGRAM, tmp_path / "profile") as browser:
        browser.resize(1200)
        for scheme in ("light", "dark"):
            browser.prefer(scheme)
            browser.open(path)
            assert browser.evaluate("document.title") == f"Title {NASTY}"  # as text; nothing of it ran
            names = "[...document.querySelectorAll('#images .predicted')].map((one) => one.textContent)"
            assert browser.evaluate(names) == [NASTY, "dog", NASTY, "cat"]  # the most uncertain first
            assert browser.evaluate("document.querySelectorAll('#images img').length") == 3
            browser.evaluate("document.querySelector('td.mistakes button').click()")
            assert browser.evaluate(names) == [NASTY]
            assert browser.evaluate("document.getElementById('shown').textContent") == "1 of 4 images"
            assert browser.evaluate("getComputedStyle(document.getElementById('more')).display") == "none"
        browser.resize(390)
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert browser.complaints == []
