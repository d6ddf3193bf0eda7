"""The output folder of a shipped plan whose settings the command line changes, next to that of the plan."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from cocoamix.config import roles
from cocoamix.config.table import KEYS

from .plan import Options

_LONGEST = 60  # characters added to the name


def folder_for(output: Path, options: Options) -> Path:
    """Return `output` with the settings in its name, such as quickstart-max_epoch3.

    A hash follows if other settings could give the same words.
    options: the options of the command line. Those that do not affect results are ignored.
    """
    given = {key: str(value) for key, value in options if roles.matters(key)}
    words = [f"{key.split('.')[-1].lower()}{value}" for key, value in sorted(given.items())]
    name = re.sub(r"[^\w.+-]+", "-", "_".join(words))
    if len(name) > _LONGEST or any(_is_ambiguous(key, value) for key, value in given.items()):
        name = f"{name[:_LONGEST]}-{hashlib.sha256(repr(sorted(given.items())).encode()).hexdigest()[:6]}"
    return output.with_name(f"{output.name}-{name}") if name else output


def _is_ambiguous(key: str, value: str) -> bool:
    """Return whether another setting could give the same words: characters were replaced, or keys share a last word."""
    same_word = [one.name for one in KEYS if one.path[-1] == key.split(".")[-1]]
    return same_word != [key] or re.search(r"[^A-Za-z0-9.+-]", value) is not None
