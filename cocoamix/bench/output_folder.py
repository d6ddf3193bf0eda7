"""Where the runs of a shipped plan go whose settings the command line changes: beside those of the plan itself."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from cocoamix.config import roles

from .plan import Options

_LONGEST = 60  # characters of what is added to the name


def folder_for(output: Path, options: Options) -> Path:
    """Return `output` with the settings in its name, such as quickstart-max_epoch3.

    options: of the command line. Those that no result depends on change nothing.
    """
    given = {key: str(value) for key, value in options if roles.matters(key)}
    words = [f"{key.split('.')[-1].lower()}{value}" for key, value in sorted(given.items())]
    name = re.sub(r"[^\w.+-]+", "-", "_".join(words))
    if len(name) > _LONGEST:
        name = f"{name[:_LONGEST]}-{hashlib.sha256(repr(sorted(given.items())).encode()).hexdigest()[:6]}"
    return output.with_name(f"{output.name}-{name}") if name else output
