"""The chart of base against new accuracy: points, deviations, arrows, lines of equal H, and drawing."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest

from cocoamix.drawing.chart import Chart, Series
from cocoamix.drawing.charts import draw
from cocoamix.drawing.equal_h import Window, equal_h, levels, window
from cocoamix.drawing.style import DARK, LIGHT
from cocoamix.report.build import Options, build
from cocoamix.report.model.stats import harmonic
from cocoamix.report.paper import figures
from tests.experiments.trees import write_pair, write_results


def find_chart(root: Path, **options: Any) -> Chart | None:
    charts = [chart for section in build([root], Options(**options)).sections for chart in section.charts]
    return next((chart for chart in charts if chart.kind == "tradeoff"), None)


def chart_of(root: Path, **options: Any) -> Chart:
    chart = find_chart(root, **options)
    assert chart is not None
    return chart


def points(chart: Chart) -> dict[str, tuple[float, float]]:
    return {one.label: (one.x[0], one.y[0]) for one in chart.series}


def arrows(chart: Chart) -> set[tuple[str, str]]:
    return {(chart.series[start].label, chart.series[end].label) for start, end in chart.arrows}


# ---------------------------------------------------------------------------------------- data


def test_points_are_averages_with_the_deviation_over_seeds(tmp_path: Path) -> None:
    for seed, one, other in ((1, 80.0, 60.0), (2, 84.0, 62.0)):
        write_pair(tmp_path, one, 50.0, seed=seed)
        write_pair(tmp_path, other, 60.0 + 8 * seed, seed=seed, dataset="DTD")
    write_pair(tmp_path, 70.0, 60.0, trainer="ZeroshotCLIP")
    write_pair(tmp_path, 60.0, 70.0, trainer="ZeroshotCLIP", dataset="DTD")
    chart = chart_of(tmp_path)
    assert chart.key == "base2new-4-tradeoff"
    assert chart.title == "Average over 2 datasets: base and new"
    assert points(chart) == {"CLIP": (65.0, 65.0), "CoOp": (71.5, 61.0)}
    coop = chart.series[1]
    assert coop.x_spread == (1.5,)  # of 70 and 73
    assert coop.spread == (2.0,)  # of 59 and 63
    assert (chart.series[0].x_spread, chart.series[0].spread) == ((0.0,), (0.0,))
    assert chart.alt == "CLIP: base 65.0, new 65.0; CoOp: base 71.5, new 61.0"


def test_the_only_dataset_is_shown_and_several_have_one_chart(tmp_path: Path) -> None:
    for trainer in ("CoOp", "KgCoOp"):
        write_pair(tmp_path / "one", 80.0, 60.0, trainer=trainer)
        for dataset in ("DTD", "EuroSAT", "Food101"):
            write_pair(tmp_path / "three", 80.0, 60.0, trainer=trainer, dataset=dataset)
    assert chart_of(tmp_path / "one").title == "EuroSAT: base and new"
    charts = [chart for section in build([tmp_path / "three"]).sections for chart in section.charts]
    assert [chart.title for chart in charts if chart.kind == "tradeoff"] == ["Average over 3 datasets: base and new"]


def test_arrows_go_from_clip_to_trained_methods(tmp_path: Path) -> None:
    for trainer in ("CoOp", "KgCoOp", "ZeroshotCLIP", "ZeroshotCLIP2"):
        write_pair(tmp_path, 80.0, 60.0, trainer=trainer)
    assert arrows(chart_of(tmp_path)) == {("CLIP", "CoOp"), ("CLIP", "KgCoOp")}


def test_without_clip_there_are_no_arrows(tmp_path: Path) -> None:
    for trainer in ("CoOp", "KgCoOp", "ZeroshotCLIP2"):
        write_pair(tmp_path, 80.0, 60.0, trainer=trainer)
    chart = chart_of(tmp_path)
    assert len(chart.series) == 3
    assert chart.arrows == ()


def test_arrows_connect_only_comparable_points(tmp_path: Path) -> None:
    for backbone in ("ViT-B/16", "RN50"):
        for trainer in ("CoOp", "ZeroshotCLIP"):
            names = {"trainer": trainer, "config_name": backbone.replace("/", "_")}
            write_pair(tmp_path, 80.0, 60.0, protocol={"backbone": backbone}, **names)
    assert arrows(chart_of(tmp_path)) == {("CLIP (RN50)", "CoOp (RN50)"), ("CLIP (ViT-B_16)", "CoOp (ViT-B_16)")}


def test_a_method_without_a_half_or_a_dataset_is_omitted(tmp_path: Path) -> None:
    for dataset in ("DTD", "EuroSAT"):
        for trainer in ("CoOp", "KgCoOp"):
            write_pair(tmp_path, 80.0, 60.0, trainer=trainer, dataset=dataset)
        folder = f"base2new/train_base/{dataset.lower()}/shots_4/MaPLe/vit_b16/seed1"
        write_results(tmp_path / folder, 99.0, trainer="MaPLe", dataset=dataset)
    write_pair(tmp_path, 99.0, 99.0, trainer="ProGrad")
    write_pair(tmp_path, 70.0, 70.0, trainer="ZeroshotCLIP")
    chart = chart_of(tmp_path)
    assert set(points(chart)) == {"CoOp", "KgCoOp"}
    assert chart.arrows == ()  # CLIP has no average, either


def test_one_point_makes_no_chart(tmp_path: Path) -> None:
    write_pair(tmp_path, 80.0, 60.0)
    assert find_chart(tmp_path) is None


# ---------------------------------------------------------------------------------------- the paper


def test_points_of_the_paper_have_separate_arrows(tmp_path: Path) -> None:
    printed = figures()["base_to_new"]["datasets"]
    for dataset in printed:
        if dataset != "Average":
            for trainer in ("ZeroshotCLIP", "CoOp"):
                write_pair(tmp_path, 80.0, 60.0, trainer=trainer, dataset=dataset)
    chart = chart_of(tmp_path, paper=True)
    assert points(chart)["CoCoA-Mix (paper)"] == (79.31, 75.1)
    assert {one.label for one in chart.series if one.paper} == {f"{method} (paper)" for method in printed["Average"]}
    others = {f"{method} (paper)" for method in printed["Average"] if method != "CLIP"}
    assert arrows(chart) == {("CLIP", "CoOp")} | {("CLIP (paper)", name) for name in others}
    assert not any(one.paper for one in chart_of(tmp_path).series)


def test_points_of_the_paper_use_the_averaged_datasets(tmp_path: Path) -> None:
    for dataset in ("DTD", "EuroSAT"):
        write_pair(tmp_path / "two", 80.0, 60.0, dataset=dataset)
        write_pair(tmp_path / "other", 80.0, 60.0, dataset=dataset)
    write_pair(tmp_path / "other", 80.0, 60.0, dataset="Shapes")
    write_pair(tmp_path / "one", 80.0, 60.0)
    printed = figures()["base_to_new"]["datasets"]
    bases = [printed[dataset]["CoOp"]["base"]["mean"] for dataset in ("DTD", "EuroSAT")]
    assert points(chart_of(tmp_path / "two", paper=True))["CoOp (paper)"][0] == pytest.approx(sum(bases) / 2)
    assert points(chart_of(tmp_path / "one", paper=True))["CoOp (paper)"][0] == bases[1]
    assert find_chart(tmp_path / "other", paper=True) is None  # the paper has no such average, and one point is left


# ---------------------------------------------------------------------------------------- lines of equal H

WINDOWS = [Window(60, 85, 64, 78), Window(0, 100, 0, 100), Window(97, 101, 20, 60), Window(10, 14, 88, 96)]


@pytest.mark.parametrize("shown", WINDOWS)
def test_h_is_the_same_along_a_line(shown: Window) -> None:
    found = levels(shown)
    assert 2 <= len(found) <= 8
    for level in found:
        line = equal_h(level, shown)
        assert len(line) > 100
        assert [harmonic(x, y) for x, y in line] == pytest.approx([level] * len(line))
        assert all(shown.left - 1e-9 <= x <= shown.right + 1e-9 for x, _ in line)
        assert all(shown.bottom - 1e-9 <= y <= shown.top + 1e-9 for _, y in line)


@pytest.mark.parametrize("shown", WINDOWS)
def test_a_line_goes_from_edge_to_edge(shown: Window) -> None:
    for level in levels(shown):
        (first_x, first_y), *_, (last_x, last_y) = equal_h(level, shown)
        assert math.isclose(first_x, shown.left, abs_tol=1e-6) or math.isclose(first_y, shown.top)
        assert math.isclose(last_x, shown.right) or math.isclose(last_y, shown.bottom, abs_tol=1e-6)


def test_a_line_outside_the_axes_has_no_points() -> None:
    shown = Window(60, 80, 60, 80)
    assert equal_h(59, shown) == []
    assert equal_h(81, shown) == []
    assert equal_h(70, shown)


def test_levels_are_few_round_numbers() -> None:
    assert levels(Window(62, 84, 66, 77)) == [65, 70, 75, 80]
    assert levels(Window(64, 84, 66, 77)) == [66, 68, 70, 72, 74, 76, 78, 80]
    assert levels(Window(40, 100, 40, 100)) == [50, 60, 70, 80, 90]


def test_axes_contain_points_with_their_deviations() -> None:
    series = [Series(str(x), (x,), (y,), (3.0,), x_spread=(2.0,)) for x, y in ((60.0, 70.0), (80.0, 75.0), (99.0, 1.0))]
    shown = window(series)
    assert shown.left < 58
    assert shown.right > 101
    assert shown.top > 78
    assert shown.bottom == 0.0  # no accuracy is lower
    alone = window([Series("a", (80.0,), (80.0,), (0.0,), x_spread=(0.0,))] * 2)
    assert alone.right > alone.left + 1


# ---------------------------------------------------------------------------------------- drawing


def chart_with(places: dict[str, tuple[float, float]], spread: float = 0.5, **changes: Any) -> Chart:
    series = tuple(
        Series(label, (x,), (y,), (2 * spread,), x_spread=(spread,), paper=label.endswith("(paper)"))
        for label, (x, y) in places.items()
    )
    tail = tuple((0, place) for place in range(1, len(series)))
    return Chart("key", "tradeoff", "title", "alt", series, x_label="base", y_label="new", arrows=tail, **changes)


FIVE = {
    "CLIP": (65.0, 69.0),
    "CoOp": (77.0, 68.0),
    "KgCoOp": (78.5, 75.0),
    "ProGrad": (79.0, 73.0),
    "Mix": (80.0, 75.0),
}
CLOSE = {"CLIP": (70.0, 70.0)} | {f"method {n}": (78.0 + 0.3 * n, 74.0 + 0.2 * (n % 3)) for n in range(6)}
PAPER = {f"{name} (paper)": (x - 3.0, y - 4.0) for name, (x, y) in FIVE.items()}
MANY = {"CLIP": (65.0, 69.0)} | {f"method {n}": (70.0 + n, 66.0 + (7 * n) % 11) for n in range(30)}
# Two methods may have the same result, at the edge of the data.
EQUAL = {"CLIP": (98.0, 99.0), "CoOp": (100.0, 100.0), "KgCoOp": (100.0, 100.0)}


def boxes_of(figure: Any, texts: list[Any]) -> list[Any]:
    figure.draw_without_rendering()
    return [text.get_window_extent() for text in texts]


def texts_of(figure: Any) -> list[Any]:
    return [text for text in figure.axes[0].texts if text.get_text()]


@pytest.mark.parametrize("places", [FIVE, CLOSE, EQUAL, FIVE | PAPER])
def test_names_overlap_neither_each_other_nor_a_point(places: dict[str, tuple[float, float]]) -> None:
    chart = chart_with(places, spread=0.2)
    figure = draw(chart)
    texts = texts_of(figure)
    assert {text.get_text().replace("\n", " ") for text in texts} >= set(places)
    assert not figure.legends
    boxes = boxes_of(figure, texts)
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    axes = figure.axes[0]
    half = 3 / 72 * figure.dpi  # of a marker
    for box in boxes:
        for x, y in places.values():
            (left, low), (right, high) = axes.transData.transform([(x - 0.2, y - 0.4), (x + 0.2, y + 0.4)])
            across, up = axes.transData.transform((x, y))
            taken = [(across, across, up, up), (left, right, up, up), (across, across, low, high)]
            for x0, x1, y0, y1 in taken:
                grow = half if x0 == x1 and y0 == y1 else 0.0
                apart = box.x1 < x0 - grow or box.x0 > x1 + grow or box.y1 < y0 - grow or box.y0 > y1 + grow
                assert apart
        assert axes.get_window_extent().contains(box.x0 + 1, box.y0 + 1)
        assert axes.get_window_extent().contains(box.x1 - 1, box.y1 - 1)


def test_each_name_is_near_its_point() -> None:
    figure = draw(chart_with(FIVE))
    texts = [text for text in texts_of(figure) if text.get_text() in FIVE]
    for text, box in zip(texts, boxes_of(figure, texts), strict=True):
        x, y = figure.axes[0].transData.transform(FIVE[text.get_text()])
        near = (min(max(x, box.x0), box.x1), min(max(y, box.y0), box.y1))
        assert math.dist((x, y), near) < 14 / 72 * figure.dpi


def test_too_many_names_are_moved_to_a_legend() -> None:
    figure = draw(chart_with(MANY))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(MANY)
    assert all(text.get_text().startswith("H ") for text in texts_of(figure))
    plain = draw(chart_with(FIVE))
    assert figure.get_figheight() > plain.get_figheight() + 1  # the axes keep their size


def test_legend_names_each_method_once_and_explains_hollow_markers() -> None:
    paper = {"CoOp (paper)": (77.0, 70.0), "method 3 (paper)": (75.0, 70.0)}
    (legend,) = draw(chart_with(MANY | paper)).legends
    assert [text.get_text() for text in legend.get_texts()] == [*MANY, "CoOp (paper)", "hollow: paper"]


def test_each_line_of_equal_h_has_a_label_on_it() -> None:
    figure = draw(chart_with(FIVE))
    axes = figure.axes[0]
    named = [text for text in texts_of(figure) if text.get_text().startswith("H ")]
    curves = [line for line in axes.lines if len(line.get_xdata()) > 100]
    assert len(named) == len(curves) >= 3
    for text, box, curve in zip(named, boxes_of(figure, named), curves, strict=True):
        level = float(text.get_text().removeprefix("H "))
        x, y = axes.transData.inverted().transform(((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2))
        assert harmonic(x, y) == pytest.approx(level, abs=0.1)
        drawn = [(x, y) for x, y in zip(curve.get_xdata(), curve.get_ydata(), strict=True) if not math.isnan(x)]
        assert [harmonic(x, y) for x, y in drawn] == pytest.approx([level] * len(drawn))
        assert not any(box.contains(*axes.transData.transform(point)) for point in drawn)  # the line leaves a gap


def test_the_papers_points_are_hollow_and_have_the_colour_of_ours() -> None:
    figure = draw(chart_with({"CLIP": (65.0, 69.0), "CoOp": (77.0, 68.0), "CoOp (paper)": (78.0, 72.0)}))
    _, own, paper = (line for line in figure.axes[0].lines if len(line.get_xdata()) == 1)
    assert own.get_color() == paper.get_color()
    assert own.get_marker() == paper.get_marker()
    assert (own.get_markerfacecolor(), paper.get_markerfacecolor()) == (own.get_color(), "none")


def test_arrows_and_deviations_are_drawn() -> None:
    figure = draw(chart_with({"CLIP": (65.0, 69.0), "CoOp": (77.0, 68.0)}, spread=1.5))
    axes = figure.axes[0]
    (arrow,) = (text for text in axes.texts if not text.get_text() and text.arrow_patch)
    across = [axes.transData.transform(point) * 72 / figure.dpi for point in ((65.0, 69.0), (77.0, 68.0))]
    assert [*arrow.xyann, *arrow.xy] == pytest.approx([*across[0], *across[1]])
    bars = [segment for collection in axes.collections for segment in collection.get_segments()]
    ends = {tuple(float(value) for value in point) for segment in bars for point in segment}
    assert {(75.5, 68.0), (78.5, 68.0), (77.0, 65.0), (77.0, 71.0)} <= ends


def test_dark_and_light_have_the_same_layout() -> None:
    chart = chart_with(FIVE)
    light, dark = draw(chart, LIGHT), draw(chart, DARK)
    assert [text.xyann for text in light.axes[0].texts] == [text.xyann for text in dark.axes[0].texts]
    assert {text.get_color() for text in texts_of(light)} == {LIGHT.ink, LIGHT.muted}
    assert {text.get_color() for text in texts_of(dark)} == {DARK.ink, DARK.muted}
