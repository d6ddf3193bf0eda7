"""Name the output folder of a shipped plan whose settings the command line changes."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from cocoamix.config import roles
from cocoamix.config.table import KEYS

from .plan import Options

_LONGEST = 60  # characters added to the name


def folder_for(output: Path, options: Options) -> Path:
    """Return `output` with the changed settings appended to its name, such as quickstart-max_epoch3.

    A hash follows if other settings could give the same name.

    Args:
        output: The output folder of the plan.
        options: The options of the command line. Those that do not affect results are ignored.
    """
    given = {key: str(value) for key, value in options if roles.matters(key)}
    words = [f"{key.split('.')[-1].lower()}{value}" for key, value in sorted(given.items())]
    name = re.sub(r"[^\w.+-]+", "-", "_".join(words))
    if len(name) > _LONGEST or any(_is_ambiguous(key, value) for key, value in given.items()):
        name = f"{name[:_LONGEST]}-{hashlib.sha256(repr(sorted(given.items())).encode()).hexdigest()[:6]}"
    return output.with_name(f"{output.name}-{name}") if name else output


def _is_ambiguous(key: str, value: str) -> bool:
    """Return whether another setting could give the same name: characters are replaced, or keys share a last part."""
    same_last = [one.name for one in KEYS if one.path[-1] == key.split(".")[-1]]
    return same_last != [key] or re.search(r"[^A-Za-z0-9.+-]", value) is not None
