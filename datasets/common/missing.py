"""Listed images that are missing on disk: stop, skip them, or collect them for a check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from yacs.config import CfgNode

from cocoamix.errors import UserError, shorten

from .items import missing_files

_collected: ContextVar[dict[str, None] | None] = ContextVar("collected", default=None)


@contextmanager
def collect_missing() -> Iterator[dict[str, None]]:
    """Make loaders continue without missing images, and collect the paths of these."""
    found: dict[str, None] = {}
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)


def policy_of(cfg: CfgNode) -> str:
    """Return DATASET.BAD_IMAGES, or `stop` in another code base, which may not have the key."""
    return str(cfg.DATASET.get("BAD_IMAGES", "stop"))


def refuse_missing(paths: Sequence[str], origin: str, policy: str = "stop", advice: str = "") -> None:
    """Refuse missing files, or print that they are skipped (policy `skip`)."""
    refuse(missing_files(paths), len(paths), origin, policy, advice)


def refuse(missing: Sequence[str], count: int, origin: str, policy: str, advice: str = "", first_is: str = "") -> None:
    """Refuse or skip files that are known to be missing.

    Args:
        missing: The files.
        count: Number of images that the origin lists.
        origin: What lists the images, for messages.
        policy: DATASET.BAD_IMAGES.
        advice: How to fix it.
        first_is: Where the origin lists the first of them, such as its line number.
    """
    collected = _collected.get()
    if collected is not None:
        collected.update(dict.fromkeys(missing))
    elif missing:
        first = shorten(missing[0], 300)
        sentence = f"{len(missing)} of {count} images of {origin} are missing; the first is {first}{first_is}."
        if policy != "skip":
            otherwise = "Restore them, or set DATASET.BAD_IMAGES skip to continue without them."
            raise UserError(f"{sentence} {advice or otherwise}")
        print(f"{sentence} They are skipped (DATASET.BAD_IMAGES skip).")
