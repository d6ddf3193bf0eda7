"""The page as a file: valid, safe, and self-contained."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cocoamix import __version__
from cocoamix.drawing.charts import draw
from cocoamix.drawing.files import to_svg
from cocoamix.report.build import Options, build
from cocoamix.report.command import main
from cocoamix.report.render.html import render
from tests.experiments.trees import write_pair, write_results

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Reader(HTMLParser):
    """Collects tags and checks that they are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self._collect(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._collect(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def _collect(self, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "xlink:href", "srcset", "action"):
                self.references.append(value or "")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("tree")
    write_everything(root)
    return render(build([root], Options(baseline="CoOp", paper=True)))


def write_everything(root: Path) -> None:
    """Write a tree that fills every kind of table and figure."""
    for dataset, shift in (("EuroSAT", 0.0), ("DTD", -8.0), ("Food101", 5.0)):
        for seed in (1, 2, 3):
            write_pair(root, 80 + shift + seed, 62 - shift + seed, dataset=dataset, seed=seed)
            if dataset != "DTD" or seed != 2:
                write_pair(root, 82 + shift, 70 + seed, dataset=dataset, seed=seed, trainer="KgCoOp")
        write_pair(root, 60.0, 66.0, dataset=dataset, trainer="ZeroshotCLIP")
    for value in (0.0, 1.0, 5.0):
        settings = {"TRAINER": {"NAME": "CoCoAMix", "COCOAMIX": {"W": value}}}
        for seed in (1, 2, 3):
            write_pair(
                root,
                81 + value / 2 + seed / 3,
                70,
                seed=seed,
                trainer="CoCoAMix",
                config=settings,
                config_name=f"w{value}",
            )
    for trainer, drop in (("CoOpFSCIL", 1.4), ("CoCoAMixFSCIL", 0.9)):
        for seed in (1, 2, 3):
            values = [88 + seed / 4 - drop * number for number in range(9)]
            folder = root / f"fscil/{trainer}/vit_l14/seed{seed}"
            names = {"trainer": trainer, "dataset": "CIFAR100FSCIL", "subset": "all"}
            write_results(folder, values[-1], seed=seed, sessions=values, **names)
    for shots in (1, 4, 16):
        write_results(
            root / f"dtd/CoOp/rn50_{shots}shots/seed1", 50.0 + shots, dataset="DTD", subset="all", shots=shots
        )


def test_page_is_well_formed_with_unique_identifiers(page: str) -> None:
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    assert [name for name, count in Counter(reader.ids).items() if count > 1] == []
    assert len(reader.ids) > 20


def test_page_is_self_contained(page: str) -> None:
    reader = Reader()
    reader.feed(page)
    assert all(reference.startswith(("#", "data:,")) for reference in reader.references)
    assert {reference[1:] for reference in reader.references if reference.startswith("#")} <= set(reader.ids)
    inside = set(re.findall(r"url\(#([^)]+)\)", page))
    assert inside <= set(reader.ids)
    assert not re.findall(r"@import|url\((?!#)", page)


def test_figures_take_their_colours_from_the_page(page: str) -> None:
    figures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(figures) >= 4
    for figure in figures:
        assert "var(--ink)" in figure
        # matplotlib's default white or black would be invisible in one of the two modes.
        assert not re.findall(r"(?:fill|stroke): ?#[0-9a-f]{6}", figure)


def test_names_are_escaped(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 60.0, trainer="<script>alert(1)<", config_name="x")
    for path in tmp_path.rglob("results.json"):
        path.write_text(path.read_text().replace('"EuroSAT"', '"<img src=x>"'))
    text = render(build([tmp_path]))
    assert "<script>alert" not in text
    assert "<img" not in text


def test_counts_sort_as_numbers(tmp_path: Path) -> None:
    for seed in range(1, 11):
        write_pair(tmp_path, 80.0, 60.0, seed=seed)
    write_pair(tmp_path, 80.0, 60.0, dataset="DTD")
    write_pair(tmp_path, 80.0, 60.0, trainer="KgCoOp")
    text = render(build([tmp_path]))
    assert '<td data-value="10">10</td>' in text  # seeds
    assert '<td data-value="1">1 to 10</td>' in text
    assert '<td data-value="2">2 of 2</td>' in text


def test_title_describes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(1_700_000_000))
    write_pair(tmp_path / "tree", 80.0, 60.0)
    write_pair(tmp_path / "tree", 81.0, 61.0, trainer="TuneEn", protocol={"backbone": "RN50+ViT-B/16"})
    assert main([str(tmp_path / "tree"), "--html", str(tmp_path / "p & q.html"), "--quiet"]) == 0
    page = (tmp_path / "p & q.html").read_text()
    head = page[: page.index("</header>")]
    assert "<title>Results with RN50, ViT-B/16, 14 November 2023</title>" in head
    assert "<h1>Results with RN50, ViT-B/16</h1>" in head
    assert f"14 November 2023 · cocoamix {__version__} · 4 runs from {tmp_path / 'tree'}" in head
    quoted = f"'{tmp_path / 'p & q.html'}'".replace("&", "&amp;").replace("'", "&#x27;")
    html, quiet = (f'<span class="option">{option}</span>' for option in ("--html", "--quiet"))  # stay on one line
    assert f"<code>cocoamix report {tmp_path / 'tree'} {html} {quoted} {quiet}</code>" in head


def test_averages_come_before_figures_and_notes(page: str) -> None:
    section = page[page.index('<section id="base2new-4">') :]
    order = ["Average over 3 datasets</h3>", "Difference from CoOp", '<p class="note">', "<figure>", "EuroSAT</h3>"]
    assert [section.index(text) for text in order] == sorted(section.index(text) for text in order)


def test_figures_are_reproducible(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 60.0)
    chart = build([tmp_path]).sections[0].charts[0]
    first, second = (to_svg(partial(draw, chart), chart.title) for _ in range(2))
    assert first == second
