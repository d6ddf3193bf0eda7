"""Marks for better and worse than the baseline, in the tables and on the page."""

from __future__ import annotations

import re
from pathlib import Path

from cocoamix.report.build import Options, Report, build
from cocoamix.report.render.html import render
from tests.experiments.trees import write_pair, write_results


def write_methods(root: Path) -> None:
    write_pair(root, 60.0, 70.0, trainer="ZeroshotCLIP")
    write_pair(root, 80.0, 60.0)
    write_pair(root, 60.001, 71.0, trainer="KgCoOp")


def against(report: Report, label: str, table: int = 0) -> list[float | None]:
    lines = report.sections[0].tables[table].lines
    found = next(line for line in lines if line.label == label)
    return [None if value.against is None else round(value.against, 3) for value in found.values]


def cells(page: str, label: str) -> list[str]:
    """Return the classes of the cells of a method's first line on the page."""
    line = re.search(rf'<th scope="row">{label}</th>(.*?)</tr>', page)
    assert line is not None
    return re.findall(r'<td(?: class="(\w+)")?', line[1])


def test_cells_are_marked_against_the_baseline(tmp_path: Path) -> None:
    write_methods(tmp_path)
    report = build([tmp_path], Options(baseline="CoOp"))
    assert report.sections[0].reference == "CoOp"
    assert against(report, "CLIP")[:2] == [-20.0, 10.0]
    assert against(report, "CoOp") == [None] * 5
    page = render(report)
    assert cells(page, "CLIP") == ["down", "up", "down", "down", ""]
    assert cells(page, "CoOp") == [""] * 5
    assert "-20.00 against CoOp" in page


def test_zero_shot_clip_is_the_default_reference(tmp_path: Path) -> None:
    write_methods(tmp_path)
    report = build([tmp_path])
    assert report.sections[0].reference == "CLIP"
    # A difference that disappears in rounding does not count.
    assert cells(render(report), "KgCoOp")[:2] == ["", "up"]


def test_marks_do_not_rely_on_colour_alone(tmp_path: Path) -> None:
    write_methods(tmp_path)
    page = render(build([tmp_path], Options(baseline="CoOp")))
    for kind, sign, word in (("up", "▲", "better"), ("down", "▼", "worse")):
        found = re.findall(rf'<td class="{kind}".*?</td>', page)
        assert found
        assert all(sign in cell and word in cell for cell in found)


def test_lower_is_better_for_performance_drop(tmp_path: Path) -> None:
    for trainer, values in (("CoOpFSCIL", [80.0, 70.0]), ("FSPTFSCIL", [80.0, 75.0])):
        folder = tmp_path / f"fscil/cifar100/{trainer}/x/seed1"
        write_results(folder, values[-1], trainer=trainer, subset="all", sessions=values)
    page = render(build([tmp_path], Options(baseline="CoOp-FSCIL")))
    # Sessions 0 and 1, mean, PD, seeds; then the differences of the last session, mean and PD.
    assert cells(page, "FSPT-FSCIL") == ["", "up", "up", "up", ""]
    differences = page[page.index("Difference from") :]
    assert [one for one in cells(differences, "FSPT-FSCIL") if one] == ["up", "up", "up"]


def test_incomparable_cells_have_no_mark(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 60.0)
    write_pair(tmp_path, 90.0, 70.0, trainer="KgCoOp", protocol={"backbone": "RN50"})
    report = build([tmp_path], Options(baseline="CoOp"))
    assert against(report, "KgCoOp") == [None] * 5
    assert report.sections[0].reference == ""


def test_numbers_of_shots_are_marked_against_zero_shot(tmp_path: Path) -> None:
    write_results(tmp_path / "ZeroshotCLIP/rn50/dtd", 60.0, dataset="DTD", subset="all", trainer="ZeroshotCLIP")
    for shots, accuracy in ((1, 50.0), (16, 70.0)):
        folder = tmp_path / f"dtd/CoOp/rn50_{shots}shots/seed1"
        write_results(folder, accuracy, dataset="DTD", subset="all", shots=shots)
    report = build([tmp_path])
    assert against(report, "CoOp") == [None, -10.0, 10.0, None]
