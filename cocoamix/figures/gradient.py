"""`gradient`: the gradient of a prompt's loss with respect to the similarities of the label and of a wrong class."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from cocoamix.errors import UserError

from .drawn import Drawn

if TYPE_CHECKING:
    from cocoamix.drawing.style import Figure, Palette

ABOUT = "Gradient of CE + w CoA-loss with respect to the similarities, over the probability, for several w."
TIME = "seconds"
COLUMNS = ("w", "p_label", "p_wrong", "label_autograd", "label_closed", "wrong_autograd", "wrong_closed")
_TITLE = "Gradient of the prompt's loss"
_POINTS = tuple(number / 50 for number in range(1, 50))  # probabilities of the label
_MARKED = 6  # autograd is drawn as a dot at every sixth point


@dataclass(frozen=True)
class Slopes:
    """The gradients for one w with two classes, in units of 1 / tau, at each of the points.

    Attributes:
        w: The weight of the CoA-loss.
        label: The gradients with respect to the similarity of the label.
        wrong: The gradients with respect to the similarity of the other class.
    """

    w: float
    label: list[float]
    wrong: list[float]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the weights of the CoA-loss."""
    parser.add_argument(
        "--w", nargs="+", type=float, default=[0, 1, 3, 5, 7], help="weights of the CoA-loss (default: 0 1 3 5 7)"
    )


def make(args: argparse.Namespace) -> Iterable[Drawn]:
    """Compute the gradients by autograd and in closed form."""
    if any(not 0 <= w < float("inf") for w in args.w):
        raise UserError(f"--w is {' '.join(f'{w:g}' for w in args.w)}; weights of the CoA-loss are 0 or more.")
    weights = list(dict.fromkeys(args.w))
    measured = [by_autograd(w) for w in weights]
    closed = [by_formula(w) for w in weights]
    rows = [
        (one.w, p, 1 - p, one.label[n], two.label[n], one.wrong[n], two.wrong[n])
        for one, two in zip(measured, closed, strict=True)
        for n, p in enumerate(_POINTS)
    ]
    draw = partial(_draw, measured, closed)
    return [Drawn("gradient", _TITLE, _sentence(measured, closed), draw, COLUMNS, rows)]


def by_formula(w: float) -> Slopes:
    """Return the closed form: -(1 - p(y)) (1 + w p(y)) for the label, p(c) (1 + w p(y)) for the other class."""
    return Slopes(w, [-(1 - p) * (1 + w * p) for p in _POINTS], [(1 - p) * (1 + w * p) for p in _POINTS])


def by_autograd(w: float) -> Slopes:
    """Return the gradients that autograd computes from the loss of the trainers."""
    import torch

    from cocoamix.coa.losses import make_loss

    label = torch.tensor(_POINTS, dtype=torch.float64)
    # Similarities divided by tau, whose softmax gives the probabilities.
    scaled = torch.stack([label, 1 - label], dim=1).log().requires_grad_()
    loss, _ = make_loss("ce+coa", w)(scaled, torch.zeros(len(label), dtype=torch.long))
    (slopes,) = torch.autograd.grad(loss * len(label), scaled)  # the loss is a mean
    return Slopes(w, slopes[:, 0].tolist(), slopes[:, 1].tolist())


def _sentence(measured: Sequence[Slopes], closed: Sequence[Slopes]) -> str:
    pairs = [
        pair
        for one, two in zip(measured, closed, strict=True)
        for pair in (*zip(one.label, two.label, strict=True), *zip(one.wrong, two.wrong, strict=True))
    ]
    gap = max(abs(one - two) for one, two in pairs)
    largest = max(closed, key=lambda one: one.w)
    steepest = max(range(len(_POINTS)), key=lambda place: -largest.label[place])
    return (
        f"With w = {largest.w:g} the gradient of the label is largest at p(y) = {_POINTS[steepest]:.2f}, where it is "
        f"{-largest.label[steepest]:.2f} / tau against {1 - _POINTS[steepest]:.2f} / tau of cross-entropy alone. "
        f"Autograd and the closed form -(1 - p(y)) (1 + w p(y)) / tau differ by at most {gap:.0e}; the paper prints "
        "(1 - w p(y)) for the second factor, a sign error."
    )


def _draw(measured: Sequence[Slopes], closed: Sequence[Slopes], palette: Palette) -> Figure:
    from cocoamix.drawing.style import Figure, apply

    with apply(palette):
        figure = Figure(figsize=(7.6, 3.7), layout="constrained")
        wrong, label = figure.subplots(1, 2)
        for place, (one, two) in enumerate(zip(measured, closed, strict=True)):
            colour = palette.hue(place)
            rest = [1 - p for p in _POINTS]
            _draw_line(wrong, rest, two.wrong, one.wrong, colour, f"w = {one.w:g}")
            _draw_line(label, list(_POINTS), two.label, one.label, colour, f"w = {one.w:g}")
        last = closed[-1]
        printed = [-(1 - p) * (1 - last.w * p) for p in _POINTS]
        if last.w:
            label.plot(_POINTS, printed, "--", color=palette.muted, linewidth=1.1, label=f"as printed, w = {last.w:g}")
        wrong.set_title("a wrong class c")
        wrong.set_xlabel("p(c), with p(y) = 1 - p(c)")
        wrong.set_ylabel("gradient · τ")
        label.set_title("the label y")
        label.set_xlabel("p(y)")
        handles, names = label.get_legend_handles_labels()
        handles.append(label.plot([], [], ".", color=palette.ink, markersize=6)[0])
        figure.legend(handles, [*names, "autograd"], loc="outside lower center", ncols=4, handlelength=1.6)
    return figure


def _draw_line(axes: Any, x: list[float], line: list[float], dots: list[float], colour: str, name: str) -> None:
    """Draw the closed form as a line, and autograd as dots on it."""
    axes.plot(x, line, color=colour, label=name)
    axes.plot(x[::_MARKED], dots[::_MARKED], ".", color=colour, markersize=7)
