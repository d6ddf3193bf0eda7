"""Keys of Dassl for features that are missing here. They must keep their defaults, or results would change."""

from __future__ import annotations

from functools import reduce
from operator import getitem
from typing import Any

from yacs.config import CfgNode

from cocoamix.errors import UserError

from .defaults import cfg_default

# The feature of each key. Keys of DATASET and MODEL are not listed: datasets and trainers may read them.
UNSUPPORTED = {
    "INPUT.NO_TRANSFORM": "untransformed images",
    "INPUT.CUTOUT_N": "the transform cutout",
    "INPUT.CUTOUT_LEN": "the transform cutout",
    "INPUT.GN_MEAN": "the transform gaussian_noise",
    "INPUT.GN_STD": "the transform gaussian_noise",
    "INPUT.RANDAUGMENT_N": "the transform randaugment",
    "INPUT.RANDAUGMENT_M": "the transform randaugment",
    "DATALOADER.K_TRANSFORMS": "several transforms of one image",
    "DATALOADER.RETURN_IMG0": "the image without augmentation (img0)",
    "DATALOADER.TRAIN_X.N_DOMAIN": "sampling by domain",
    "DATALOADER.TRAIN_U.SAME_AS_X": "training on unlabelled images",
    "DATALOADER.TRAIN_U.SAMPLER": "training on unlabelled images",
    "DATALOADER.TRAIN_U.BATCH_SIZE": "training on unlabelled images",
    "DATALOADER.TRAIN_U.N_DOMAIN": "training on unlabelled images",
    "DATALOADER.TRAIN_U.N_INS": "training on unlabelled images",
    "TRAIN.COUNT_ITER": "training on unlabelled images",
}


def refuse_unsupported(node: CfgNode, path: str = "") -> None:
    """Raise a UserError for a key of UNSUPPORTED that does not have its default.

    Args:
        node: A node of the configuration.
        path: Prefix of its keys, such as "INPUT."; empty for a whole configuration.
    """
    for key, feature in UNSUPPORTED.items():
        if not key.startswith(path):
            continue
        value, default = _value(node, key.removeprefix(path)), _value(cfg_default, key)
        if value != default:
            raise UserError(
                f"{key} is {value!r}, but Dassl is not installed, and the small version of it that is used instead "
                f"does not have {feature}. Leave the key at {default!r}, or install Dassl."
            )


def _value(node: CfgNode, key: str) -> Any:
    return reduce(getitem, key.split("."), node)
