"""Tell the split file that CoOp publishes from one drawn on this machine. Both have the same name and format."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from .sources import Source

# The first training images of published files without a known checksum. Their order is random, so they identify it.
_FIRST = {
    "Food101": ("apple_pie/3113710.jpg", "apple_pie/2485958.jpg", "apple_pie/1350394.jpg"),
}
PUBLISHED = "CoOp's split, as published"
OTHER = (
    "NOT the split that CoOp publishes: it was drawn here or changed, and its results are not comparable with "
    "published ones. To get CoOp's, move this file elsewhere, then run `cocoamix data download {name}`"
)
UNKNOWN = "CoOp's split, or one that was drawn here: this cannot be checked, because no checksum is known"


def about_split(source: Source, path: Path) -> str:
    """Describe an existing split file by its content."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return "unreadable"  # loading it reports the reason
    md5 = next((file.md5 for file in source.files if file.name == path.name), "")
    if md5:
        is_published = _md5(content) == md5
    elif source.name in _FIRST:
        is_published = _first_images(content) == _FIRST[source.name]
    else:
        return UNKNOWN
    return PUBLISHED if is_published else OTHER.format(name=source.name)


def _md5(content: Any) -> str:
    # Written in CoOp's formatting, so that differences in white space do not matter.
    text = json.dumps(content, indent=4, separators=(",", ": "))
    return hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


def _first_images(content: Any) -> tuple[Any, ...]:
    try:
        return tuple(row[0] for row in content["train"][:3])
    except (KeyError, TypeError, IndexError):
        return ()
