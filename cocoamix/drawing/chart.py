"""The data of a figure, before it is drawn."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Series:
    """The points of one method or measure in a figure."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    spread: tuple[float, ...] = ()  # deviation of each point
    dots: tuple[tuple[float, ...], ...] = ()  # values of the seeds of each point
    paper: bool = False  # whether the numbers are those of the paper
    x_spread: tuple[float, ...] = ()  # deviation of each point in x, if x is measured
    size: tuple[float, ...] = ()  # the quantity that the area of each point shows


@dataclass(frozen=True)
class Chart:
    """The data of a figure, and its alternative text."""

    key: str
    kind: str  # points, dots, curves, tradeoff, bubbles
    title: str
    alt: str
    series: tuple[Series, ...]
    ticks: tuple[str, ...] = ()  # names of the x positions (curves) or y positions (points, dots)
    x_label: str = ""
    y_label: str = "accuracy (%)"
    arrows: tuple[tuple[int, int], ...] = ()  # from and to, as indices into `series`
    x_log: bool = False
    y_range: tuple[float, float] | None = None  # the ends of the y axis (curves), if it is shared with other charts
