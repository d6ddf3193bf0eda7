"""Paths given by the user."""

from __future__ import annotations

import os
from pathlib import Path

from cocoamix.errors import UserError


def expand_home(path: str | os.PathLike[str], advice: str = "Give the path in full.") -> Path:
    """Return a path with its `~` or `~user` expanded. `advice` ends the message if there is no such home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        user = Path(path).parts[0][1:]
        reason = f"there is no user {user!r}" if user else "the home folder is unknown: HOME is not set"
        raise UserError(f"{path} cannot be found, because {reason}. {advice}") from None


def cache_folder(advice: str = "Set HOME or COCOAMIX_CACHE.") -> Path:
    """Return the user's own cache of this package: features, and hashes of files."""
    own = os.environ.get("COCOAMIX_CACHE")
    if own:
        return expand_home(own)
    return expand_home(os.environ.get("XDG_CACHE_HOME") or "~/.cache", advice) / "cocoamix"
