"""`gradient`: the gradient of a prompt's loss with respect to the similarities of the label and of a wrong class."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from cocoamix.errors import UserError

from .style import Drawing, Style, look, name_series

_TITLE = "Gradient of the prompt's loss"
_LABEL = tuple(number / 50 for number in range(1, 50))  # probabilities of the label


def make(args: argparse.Namespace) -> Iterable[Drawing]:
    """Compute the gradients by autograd and in closed form."""
    if any(not 0 <= w < float("inf") for w in args.w):
        raise UserError(f"--w is {' '.join(f'{w:g}' for w in args.w)}; weights of the CoA-loss are 0 or more.")
    slopes = pd.concat([compute(w) for w in dict.fromkeys(args.w)], ignore_index=True)
    return [Drawing("gradient", _TITLE, describe(slopes), partial(draw, slopes), slopes)]


def compute(w: float) -> pd.DataFrame:
    """Return the gradients for one w with two classes, in units of 1 / tau: from the trainers' loss, and closed forms.

    In closed form, it is -(1 - p(y)) (1 + w p(y)) for the label and p(c) (1 + w p(y)) for the other class.
    """
    import torch

    from cocoamix.coa.losses import make_loss

    label = torch.tensor(_LABEL, dtype=torch.float64)
    # Similarities divided by tau, whose softmax gives the probabilities.
    scaled = torch.stack([label, 1 - label], dim=1).log().requires_grad_()
    loss, _ = make_loss("ce+coa", w)(scaled, torch.zeros(len(label), dtype=torch.long))
    (slopes,) = torch.autograd.grad(loss * len(label), scaled)  # the loss is a mean
    p = np.array(_LABEL)
    closed = (1 - p) * (1 + w * p)
    columns = {"label_autograd": slopes[:, 0].tolist(), "label_closed": -closed}
    columns |= {"wrong_autograd": slopes[:, 1].tolist(), "wrong_closed": closed}
    return pd.DataFrame({"w": w, "p_label": p, "p_wrong": 1 - p, **columns})


def describe(slopes: pd.DataFrame) -> str:
    """Describe the largest gradient, and the gap between autograd and the closed form."""
    gap = max((slopes[f"{side}_autograd"] - slopes[f"{side}_closed"]).abs().max() for side in ("label", "wrong"))
    largest = slopes[slopes["w"] == slopes["w"].max()]
    steepest = largest.loc[largest["label_closed"].idxmin()]
    return (
        f"With w = {steepest['w']:g} the gradient of the label is largest at p(y) = {steepest['p_label']:.2f}, where "
        f"it is {-steepest['label_closed']:.2f} / tau against {steepest['p_wrong']:.2f} / tau of cross-entropy alone. "
        f"Autograd and the closed form -(1 - p(y)) (1 + w p(y)) / tau differ by at most {gap:.0e}; the paper prints "
        "(1 - w p(y)) for the second factor, a sign error."
    )


def draw(slopes: pd.DataFrame, style: Style) -> Figure:
    """Draw a line for each w, the closed form, with dots of autograd on it."""
    figure, panels = style.panels(2, 2.3, _TITLE)
    for axes, side, x in zip(panels, ("wrong", "label"), ("p(c), with p(y) = 1 - p(c)", "p(y)"), strict=True):
        for place, (w, own) in enumerate(slopes.groupby("w", sort=False)):
            colour = look(place).colour
            axes.plot(own[f"p_{side}"], own[f"{side}_closed"], color=colour, label=f"w = {w:g}")
            axes.plot(own[f"p_{side}"], own[f"{side}_autograd"], ".", color=colour, markevery=6)
        axes.set(
            title="a wrong class c" if side == "wrong" else "the label y",
            xlabel=x,
            ylabel="gradient · τ (dots: autograd)",
        )
    name_series(figure, panels)
    return figure
