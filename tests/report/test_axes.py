"""The axes of figures: close to the values, equal where figures are compared, with labels that do not overlap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cocoamix.drawing.chart import Chart, Series
from cocoamix.drawing.charts import draw
from cocoamix.drawing.ranges import align, around, stretch, thin
from cocoamix.drawing.style import LIGHT, apply, shorten_middle, wrap
from cocoamix.report.build import build
from tests.experiments.trees import write_pair


def curves(key: str, *values: float) -> Chart:
    places = tuple(float(place) for place in range(len(values)))
    series = Series("a", places, values, (0.0,) * len(values), ((),) * len(values))
    return Chart(key, "curves", key, "", (series,), tuple(map(str, range(len(values)))))


def boxes(labels: list[Any]) -> list[Any]:
    return [label.get_window_extent() for label in labels if label.get_text() and label.get_visible()]


def overlapping(found: list[Any]) -> list[tuple[Any, Any]]:
    return [(a, b) for place, a in enumerate(found) for b in found[:place] if a.overlaps(b)]


def test_axis_fits_its_values_tightly() -> None:
    low, high = around([78.0, 88.0])
    assert 76 < low < 78
    assert 88 < high < 90


def test_axis_does_not_magnify_noise_or_exceed_percentages() -> None:
    low, high = around([99.9, 100.0])
    assert high == 100
    assert high - low == pytest.approx(4)
    assert stretch((0.5, 1.0), 4.0) == (0.0, 4.0)


def test_figures_at_similar_levels_share_their_axis() -> None:
    one, two = align([curves("a", 80.0, 70.0), curves("b", 82.0, 75.0)])
    assert one.y_range == two.y_range
    assert one.y_range is not None
    assert one.y_range[0] < 70 < 82 < one.y_range[1]


def test_figures_at_distant_levels_share_their_scale() -> None:
    charts = align([curves("a", 95.0, 90.0), curves("b", 60.0, 50.0), curves("c")])
    (low, high), (below, above) = (chart.y_range for chart in charts[:2] if chart.y_range)
    assert low < 90 < 95 < high <= 100
    assert below < 50 < 60 < above
    assert high - low == pytest.approx(above - below)
    axes = draw(charts[0]).axes[0]
    assert axes.get_ylim() == pytest.approx((low, high))


def test_methods_are_shown_on_an_axis_around_their_values(tmp_path: Path) -> None:
    for dataset in ("EuroSAT", "DTD"):
        for place in range(10):
            trainer = f"AMethodWithAVeryLongName{place}" if place else "ZeroshotCLIP"
            for seed in (1, 2):
                write_pair(tmp_path, 80.0 + place + seed, 75.0 + seed, dataset=dataset, trainer=trainer, seed=seed)
    chart = next(one for one in build([tmp_path]).sections[0].charts if one.kind == "points")
    with apply(LIGHT):
        figure = draw(chart)
        figure.draw_without_rendering()
        (axes,) = figure.axes
        low, high = axes.get_xlim()
        assert 70 < low < 76
        assert 91 < high < 97
        assert "does not start at 0" in axes.get_xlabel()
        assert overlapping(boxes(axes.get_yticklabels())) == []
        numbers = boxes(axes.texts)
        assert overlapping(numbers) == []
        assert all(box.x1 <= figure.bbox.x1 for box in numbers)


def test_sweep_labels_do_not_overlap() -> None:
    values = (0.0, 0.05, 0.1, 0.2, 1.0, 5.0, 9.9, 10.0)
    series = Series("H", values, values, (0.0,) * 8, ((),) * 8)
    figure = draw(Chart("s", "curves", "sweep", "", (series,)))
    figure.draw_without_rendering()
    labels = boxes(figure.axes[0].get_xticklabels())
    assert len(labels) > 3
    assert overlapping(labels) == []


def test_points_with_similar_parameter_counts_are_labelled() -> None:
    series = [Series(str(x), (x,), (80.0,), size=(x,)) for x in (2048.0, 2049.0, 2050.0)]
    figure = draw(Chart("p", "bubbles", "parameters", "", tuple(series), x_log=True))
    figure.draw_without_rendering()
    labels = figure.axes[0].get_xticklabels()
    assert {"2,048", "2,050"} <= {label.get_text() for label in labels}
    assert overlapping(boxes(labels)) == []


def test_thin_keeps_both_ends() -> None:
    assert thin([0.0, 0.1, 1.0, 5.0, 9.9, 10.0], 0.8) == [0.0, 1.0, 5.0, 10.0]
    assert thin([1.0], 1.0) == [1.0]
    assert thin([], 1.0) == []


def test_long_names_break_between_their_parts() -> None:
    assert wrap("CoCoA-Mix (tiny_two_stage)") == "CoCoA-Mix (tiny_\ntwo_stage)"
    assert wrap("DescribableTextures") == "Describable\nTextures"
    assert all(len(line) <= 16 for line in wrap("x" * 90).split("\n"))
    assert wrap("x" * 90).count("\n") == 2


def test_long_names_are_shortened_in_the_middle() -> None:
    one, two = (shorten_middle("a" * 60 + end, 48) for end in ("1", "2"))
    assert one != two
    assert len(one) == 48
