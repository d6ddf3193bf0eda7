"""The page of predictions, as a file and in a real browser. The latter is skipped without Chromium."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from PIL import Image

from cocoamix.predict.page import Page
from cocoamix.predict.summary import Summary
from cocoamix.run.predictions import UNKNOWN, Record, unreadable_record
from tests.browser import Browser, find_browser

PROGRAM = find_browser()
NASTY = '</script><script>document.title = "owned"</script><img src=x onerror="document.title=\'owned\'">'


def record(image: str, label: str, predicted: str, confidence: float, own: float | None) -> Record:
    best = "cat" if predicted == UNKNOWN else predicted
    return Record(image, label, predicted, confidence, own, ((best, confidence), ("bird", 0.05)))


def write_page(folder: Path, nasty: str = NASTY) -> Path:
    """Write a page of seven images, three of them mistakes, with names that try to inject code, and one unreadable."""
    image = str(folder / "red.png")
    Image.new("RGB", (40, 20), "red").save(image)
    summary, some = Summary(["cat", "dog", "bird", nasty]), io.StringIO()
    page = Page(some, f"Title {nasty}", [f"Lead {nasty}"], upright=False)
    for one in (
        record(f"{nasty}.png", "cat", "cat", 0.9, 0.9),
        record(image, "cat", nasty, 0.8, 0.1),
        record(image, "dog", "dog", 0.7, 0.7),
        record(image, "dog", UNKNOWN, 0.3, 0.2),  # a false alarm
        record(image, nasty * 2, UNKNOWN, 0.2, None),  # of no class, and detected
        record(image, nasty * 2, "cat", 0.6, None),  # of no class, and not detected
        record(image, "", "cat", 0.5, None),
        unreadable_record(f"{nasty}.jpg", "cat", f"gone {nasty}"),
    ):
        summary.add(one)
        page.add(one)
    page.end([*summary.lines(with_unknown=True), nasty])
    path = folder / "page.html"
    path.write_text(some.getvalue(), encoding="utf-8")
    return path


def test_data_cannot_break_out_of_the_script(tmp_path: Path) -> None:
    text = write_page(tmp_path).read_text()
    assert NASTY not in text
    (content,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    data = json.loads(content)
    assert [one["predicted"] for one in data["images"]][:3] == ["cat", NASTY, "dog"]
    assert [one.get("correct") for one in data["images"]] == [True, False, True, False, True, False, None]
    assert data["images"][1]["thumbnail"].startswith("data:image/jpeg;base64,")
    assert "thumbnail" not in data["images"][0]  # there is no such file
    assert data["unreadable"] == [{"image": f"{NASTY}.jpg", "label": "cat", "error": f"gone {NASTY}"}]
    assert not re.search(r'(?:src|href)="(?!data:)', text)


def write_long_page(folder: Path) -> tuple[Path, str]:
    """Write a page of an image in a deep folder, predicted as a class with a long name."""
    image = folder / "photographs_of_the_garden" / "roses_and_other_flowers" / "IMG_20240501_120000_panorama.jpg"
    name = "a very long name of a class that does not fit into one line of a card"
    some = io.StringIO()
    page = Page(some, "Title", [], upright=False, above=str(folder / "photographs_of_the_garden"))
    page.add(record(str(image), "", name, 0.9, None))
    page.add(unreadable_record(str(image), "", "gone"))
    page.end([])
    path = folder / "page.html"
    path.write_text(some.getvalue(), encoding="utf-8")
    return path, name


SHORT = "roses_and_other_flowers/IMG_20240501_120000_panorama.jpg"


def test_names_of_images_are_relative_to_the_given_folder(tmp_path: Path) -> None:
    path, _ = write_long_page(tmp_path)
    (content,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', path.read_text(), re.DOTALL)
    for one in (*json.loads(content)["images"], *json.loads(content)["unreadable"]):
        assert (one["name"], one["image"]) == (SHORT, str(tmp_path / "photographs_of_the_garden" / SHORT))


@pytest.mark.skipif(PROGRAM is None, reason="no Chromium here")
def test_long_names_are_whole_on_the_page(tmp_path: Path) -> None:
    assert PROGRAM is not None
    path, name = write_long_page(tmp_path)
    with Browser(PROGRAM, tmp_path / "profile") as browser:
        for width in (1200, 390):
            browser.resize(width)
            browser.open(path)
            shown = "[...document.querySelectorAll('.name')].map((one) => [one.textContent, one.title])"
            full = str(tmp_path / "photographs_of_the_garden" / SHORT)
            assert browser.evaluate(shown) == [[SHORT, full], [f"{SHORT}: gone", full]]
            assert browser.evaluate("document.querySelector('.bar').title") == name
            bar = "document.querySelector('.bar span')"
            assert browser.evaluate(f"{bar}.textContent") == name
            assert browser.evaluate(f"{bar}.scrollWidth <= {bar}.clientWidth")  # nothing is cut
            assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert browser.complaints == []


@pytest.mark.skipif(PROGRAM is None, reason="no Chromium here")
def test_page_works_in_a_browser(tmp_path: Path) -> None:
    assert PROGRAM is not None
    path = write_page(tmp_path)
    with Browser(PROGRAM, tmp_path / "profile") as browser:
        browser.resize(1200)

        def texts(selector: str) -> list[str]:
            found = browser.evaluate(f"[...document.querySelectorAll('{selector}')].map((one) => one.textContent)")
            assert isinstance(found, list)
            return found

        for scheme in ("light", "dark"):
            browser.prefer(scheme)
            browser.open(path)
            assert browser.evaluate("document.title") == f"Title {NASTY}"  # as text; none of it was executed
            # The most uncertain first.
            assert texts("#images .predicted") == [UNKNOWN, UNKNOWN, "cat", "cat", "dog", NASTY, "cat"]
            assert browser.evaluate("document.querySelectorAll('#images img').length") == 6
            # The accuracy is over images of the classes: two of four. Of the two others, one is detected.
            assert texts("#summary li") == [
                "7 images, 1 unreadable",
                "accuracy 50.00 % over 4 images with a label among the classes",
                "25.00 % of 4 images of known classes flagged as unknown (false alarms)",
                "50.00 % of 2 images of other classes flagged as unknown",
                NASTY,
            ]
            assert texts("#unreadable li") == [f"{NASTY}.jpg: gone {NASTY}"]
            assert texts("#images .right") == [UNKNOWN, "dog", "cat"]
            assert texts("td.right") == ["1", "1", "1"]
            assert texts("td.mistakes") == ["1", "1", "1"]
            browser.evaluate("document.forms[0].mistakes.click()")
            assert texts("#images .predicted") == [UNKNOWN, "cat", NASTY]
            browser.evaluate("document.querySelector('td.right button').click()")
            assert texts("#images .predicted") == [UNKNOWN]
            assert texts("#shown") == ["1 of 7 images"]
            assert browser.evaluate("getComputedStyle(document.getElementById('more')).display") == "none"
        browser.resize(390)
        assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert browser.complaints == []
