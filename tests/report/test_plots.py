"""The files of the figures: light and dark, for a README that follows the reader's colour scheme."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cocoamix.drawing.charts import variables
from cocoamix.report.build import build
from cocoamix.report.render.plots import write
from tests.experiments.trees import write_pair, write_results


@pytest.fixture(scope="module")
def plots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("plots")
    for trainer, seed in (("ZeroshotCLIP", 1), ("CoOp", 1), ("CoOp", 2)):
        write_pair(root / "tree", 80.0 + seed, 60.0, trainer=trainer, seed=seed)
    write_results(root / "tree/fscil/seed1", 70.0, trainer="CoOpFSCIL", subset="all", sessions=[80.0, 70.0])
    write(build([root / "tree"]), root / "plots")
    return root / "plots"


def light_names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.svg") if not path.stem.endswith("-dark"))


def test_each_figure_has_a_dark_version(plots: Path) -> None:
    names = light_names(plots)
    assert {name.split("-")[-1] for name in names} == {"points", "dots", "curves", "tradeoff", "base", "novel"}
    ends = (".svg", "-dark.svg", ".png", "-dark.png", ".pdf")
    assert {path.name for path in plots.iterdir()} == {name + end for name in names for end in ends}


def test_dark_and_light_figures_differ_only_in_colours(plots: Path) -> None:
    for name in light_names(plots):
        light, dark = ((plots / f"{name}{end}.svg").read_text() for end in ("", "-dark"))
        assert _without_colours(light) == _without_colours(dark)
        for colour, other in variables().values():
            assert colour not in dark
            assert other not in light
        # matplotlib's default white or black would be invisible in one of the two modes.
        shown = {one for pair in variables().values() for one in pair}
        assert set(re.findall(r"(?:fill|stroke): ?(#[0-9a-f]{6})", light + dark)) <= shown


def _without_colours(svg: str) -> list[tuple[str, str]]:
    parts = [(one.tag, one.attrib, one.text or "") for one in ElementTree.fromstring(svg).iter()]
    return [(tag, str(attributes.get("d")) + text) for tag, attributes, text in parts if not tag.endswith("style")]


def test_fonts_are_available_on_every_system(plots: Path) -> None:
    """GitHub shows SVG with the fonts of the reader's system, and loads none."""
    for path in plots.glob("*.svg"):
        families = set(re.findall(r"font-family: ([^;\"]*)", path.read_text()))
        assert families == {"'DejaVu Sans', 'Verdana', 'Arial', sans-serif"}


def test_png_files_are_sharp_and_transparent(plots: Path) -> None:
    for path in plots.glob("*.png"):
        width, _, depth, kind = struct.unpack(">IIBB", path.read_bytes()[16:26])
        assert (width, depth, kind) == (880, 8, 6)  # twice the 440 pixels of a phone; 6: with transparency
