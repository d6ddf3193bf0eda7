"""`gradient`: the gradient of a prompt's loss with respect to the similarities of the label and of a wrong class."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from .style import Drawing, Style, look, name_series

_TITLE = "Gradient of the prompt's loss"
_WEIGHTS = (0.0, 1.0, 3.0, 5.0, 7.0)  # of the CoA-loss
_LABEL = np.arange(1, 50) / 50  # probabilities of the label


def make(_: argparse.Namespace) -> Iterator[Drawing]:
    """Compute the gradients by autograd and in closed form."""
    slopes = pd.concat(map(compute, _WEIGHTS), ignore_index=True)
    gap = max((slopes[f"{side}_autograd"] - slopes[f"{side}_closed"]).abs().max() for side in ("label", "wrong"))
    top = slopes.loc[slopes["label_closed"].idxmin()]
    sentence = (
        f"With w = {top['w']:g} the gradient of the label is largest at p(y) = {top['p_label']:.2f}, where it is "
        f"{-top['label_closed']:.2f} / tau against {top['p_wrong']:.2f} / tau of cross-entropy alone. Autograd and the "
        f"closed form -(1 - p(y)) (1 + w p(y)) / tau differ by at most {gap:.0e}; the paper prints (1 - w p(y)) for "
        "the second factor, a sign error."
    )
    yield Drawing("gradient", _TITLE, sentence, partial(_draw, slopes), slopes)


def compute(w: float) -> pd.DataFrame:
    """Return the gradients for one w with two classes, in units of 1 / tau: from the trainers' loss, and closed forms.

    In closed form, it is -(1 - p(y)) (1 + w p(y)) for the label and p(c) (1 + w p(y)) for the other class.
    """
    import torch

    from cocoamix.coa.losses import make_loss

    label = torch.from_numpy(_LABEL)
    # Similarities divided by tau, whose softmax gives the probabilities.
    scaled = torch.stack([label, 1 - label], dim=1).log().requires_grad_()
    loss, _ = make_loss("ce+coa", w)(scaled, torch.zeros(len(label), dtype=torch.long))
    (slopes,) = torch.autograd.grad(loss * len(label), scaled)  # the loss is a mean
    closed = (1 - _LABEL) * (1 + w * _LABEL)
    columns = {"label_autograd": slopes[:, 0].tolist(), "label_closed": -closed}
    columns |= {"wrong_autograd": slopes[:, 1].tolist(), "wrong_closed": closed}
    return pd.DataFrame({"w": w, "p_label": _LABEL, "p_wrong": 1 - _LABEL, **columns})


def _draw(slopes: pd.DataFrame, style: Style) -> Figure:
    """Draw a line for each w, the closed form, with dots of autograd on it."""
    figure, panels = style.panels(2, 2.1, _TITLE)
    sides = {"wrong": ("a wrong class c", "p(c) = 1 - p(y)"), "label": ("the label y", "p(y)")}
    for axes, (side, (title, x)) in zip(panels, sides.items(), strict=True):
        for place, (w, own) in enumerate(slopes.groupby("w")):
            colour = look(place).colour
            axes.plot(own[f"p_{side}"], own[f"{side}_closed"], color=colour, label=f"w = {w:g}")
            axes.plot(own[f"p_{side}"], own[f"{side}_autograd"], ".", color=colour, markevery=6)
        axes.set(title=title, xlabel=x)
    figure.supylabel("gradient · τ (dots: autograd)", fontsize="medium")
    name_series(figure, panels)
    return figure
