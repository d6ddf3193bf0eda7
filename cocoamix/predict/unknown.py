"""Images that fit no class: a threshold on confidence, set on held-out images for a rate of false alarms."""

from __future__ import annotations

from collections.abc import Sequence

from cocoamix.errors import UserError


def threshold_at(ordered: Sequence[float], rate: float) -> float:
    """Return the quantile of the confidence of held-out images at `rate`.

    Args:
        ordered: Confidences of held-out images of known classes, or their percentiles, in ascending order.
        rate: The fraction of images of known classes that may be flagged as unknown.
    """
    place = rate * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def check_rate(rate: float) -> None:
    """Raise a UserError if a rate is not between 0 and 1."""
    if not 0 < rate < 1:
        raise UserError(f"--unknown is {rate:g}; it must be a rate of false alarms between 0 and 1, such as 0.05.")
