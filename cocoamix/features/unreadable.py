"""Unreadable images: stop at them, or skip them."""

from __future__ import annotations

from collections.abc import Mapping

from cocoamix.errors import UserError, printable


class Unreadable(dict[str, str]):
    """The unreadable images of a run so far, by path, with the reason.

    Args:
        policy: DATASET.BAD_IMAGES, `stop` or `skip`.
    """

    def __init__(self, policy: str) -> None:
        super().__init__()
        self.policy = policy

    def note(self, found: Mapping[str, str]) -> None:
        """Record unreadable images: raise a UserError, or print each one once, according to the policy."""
        fresh = {path: reason for path, reason in found.items() if path not in self}
        if fresh and self.policy == "stop":
            shown = "; ".join(f"{path} ({reason})" for path, reason in list(fresh.items())[:3])
            raise UserError(
                f"{len(fresh)} unreadable image{'s' * (len(fresh) > 1)}: {shown}. "
                "Restore them from an intact copy, or skip them: add DATASET.BAD_IMAGES skip to the command."
            )
        for path, reason in fresh.items():
            print(printable(f"Skipping unreadable image {path} ({reason})"))
        self.update(fresh)
