"""Settings that a zero-shot result cannot depend on, because only training reads them.

Everything else stays part of the comparison: backbone, weights, precision, templates, test images and their transforms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SETTINGS = ("OPTIM.", "TRAIN.", "LOSS.", "DATALOADER.TRAIN_X.", "DATALOADER.TRAIN_U.", "DATASET.FEWER_SHOTS")
_FACTS = ("shots", "splits.train", "splits.folds", "model_selection", "views", "staged_lr")
# Dassl's augmentations of training images, by the start of their keys below INPUT.
_AUGMENTATIONS = ("CROP_PADDING", "RRCROP_", "CUTOUT_", "GN_", "RANDAUGMENT_", "COLORJITTER_", "RGS_", "GB_")
_TRANSFORMS = "transforms.TRANSFORMS"
_AT_TEST = ("normalize", "instance_norm")  # transforms in INPUT.TRANSFORMS that apply to test images

# Together with the settings, these facts determine a zero-shot result.
DECISIVE = ("backbone", "weights_sha256", "precision", "templates", "splits.test", "evaluated_on", "transforms.SIZE")


def without_training_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted settings without those that only training reads."""
    return {key: value for key, value in settings.items() if not key.startswith(_SETTINGS)}


def without_training_facts(protocol: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dotted facts of a protocol without those that only concern training."""
    augmentations = tuple(f"transforms.{name}" for name in _AUGMENTATIONS)
    kept = {
        key: value
        for key, value in protocol.items()
        if key not in _FACTS and not key.startswith((*augmentations, "staged_lr."))
    }
    if isinstance(kept.get(_TRANSFORMS), tuple):
        kept[_TRANSFORMS] = tuple(name for name in _AT_TEST if name in kept[_TRANSFORMS])
    return kept
