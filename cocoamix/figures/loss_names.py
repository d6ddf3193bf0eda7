"""The losses of the learned prompt: their names and hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .kinds import SECTION, number

# In the paper's order.
NAMES = {"focal": "focal", "gce": "GCE", "ce": "CE", "ce+mae": "CE + MAE", "coa": "CoA", "ce+coa": "CE + CoA"}
# The key of a loss's hyperparameter, its symbol and its default.
SETTINGS = {
    "focal": ("GAMMA", "\u03b3", 2.0),
    "gce": ("Q", "q", 0.7),
    "ce+mae": ("W", "w", 5.0),
    "ce+coa": ("W", "w", 5.0),
}
VARIED = tuple(SECTION + key for key in ("LOSS", "W", "GAMMA", "Q"))


@dataclass(frozen=True)
class Loss:
    """A loss and the value of its hyperparameter, if it has one."""

    name: str
    setting: float | None

    @property
    def title(self) -> str:
        """The name in figures."""
        return NAMES[self.name]

    @property
    def setting_text(self) -> str:
        """The setting with its symbol, or ""."""
        return "" if self.setting is None else f"{SETTINGS[self.name][1]} {self.setting:g}"

    @property
    def full_title(self) -> str:
        """The name in figures, with the setting if there is one."""
        return f"{self.title} ({self.setting_text})" if self.setting_text else self.title


def loss_of(settings: Mapping[str, Any]) -> Loss | None:
    """Return the loss of a run, or None if it is not listed."""
    name = str(settings.get(f"{SECTION}LOSS", "ce+coa"))
    if name not in NAMES:
        return None
    key = SETTINGS.get(name)
    return Loss(name, number(settings, key[0], key[2]) if key else None)
