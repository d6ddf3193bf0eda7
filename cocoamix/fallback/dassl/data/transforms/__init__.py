"""Image transforms."""

from .transforms import AVAI_CHOICES, INTERPOLATION_MODES, build_transform

__all__ = ["AVAI_CHOICES", "INTERPOLATION_MODES", "build_transform"]
