"""The trainers, registered in Dassl's trainer registry by being imported."""

from . import coop, zsclip
from .config import extend_cfg

__all__ = ["coop", "extend_cfg", "zsclip"]
