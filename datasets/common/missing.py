"""Images that a list names and the disk does not have: stop at them, leave them out, or gather them for a check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from yacs.config import CfgNode

from cocoamix.errors import UserError, shorten

from .items import missing_files

_gathered: ContextVar[dict[str, None] | None] = ContextVar("gathered", default=None)


@contextmanager
def gather_missing() -> Iterator[dict[str, None]]:
    """Let loaders go on without missing images, and list the paths of all of them."""
    found: dict[str, None] = {}
    token = _gathered.set(found)
    try:
        yield found
    finally:
        _gathered.reset(token)


def policy_of(cfg: CfgNode) -> str:
    """Return DATASET.BAD_IMAGES; a tree of others' may not have that key."""
    return str(cfg.DATASET.get("BAD_IMAGES", "stop"))


def refuse_missing(paths: Sequence[str], origin: str, policy: str = "stop", way_out: str = "") -> None:
    """Stop where files are not there, or say that they are left out (policy `skip`): reading them will skip each."""
    refuse(missing_files(paths), len(paths), origin, policy, way_out)


def refuse(missing: Sequence[str], count: int, origin: str, policy: str, way_out: str = "", first_is: str = "") -> None:
    """Do the same with what is known to be missing.

    count: of all images that the origin names. first_is: where it names the first, such as its line.
    """
    gathered = _gathered.get()
    if gathered is not None:
        gathered.update(dict.fromkeys(missing))
    elif missing:
        first = shorten(missing[0], 300)
        sentence = f"{len(missing)} of {count} images of {origin} are missing, the first is {first}{first_is}."
        if policy != "skip":
            otherwise = "Restore them, or set DATASET.BAD_IMAGES skip to go on without."
            raise UserError(f"{sentence} {way_out or otherwise}")
        print(f"{sentence} DATASET.BAD_IMAGES skip leaves them out.")
