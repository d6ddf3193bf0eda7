"""The trainers. Importing this package registers them in Dassl's trainer registry.

It also adds our configuration keys to Dassl's defaults, so that the train.py of another code base accepts them.
"""

from cocoamix.compat import check_torch, ensure_torchvision

check_torch()
ensure_torchvision()  # real Dassl imports it

# isort: split
import dassl.config
from dassl.config import cfg_default

from cocoamix.config.cleaning import keep_our_sections
from cocoamix.config.keys import extend_cfg

from . import cocoamix, cocoop, coop, dept, kgcoop, maple, prograd, tune_en, zsclip
from .fscil import fact, fspt, l2p, methods  # noqa: F401

# In place, because a train.py may already have imported `get_cfg_default`.
extend_cfg(cfg_default)
keep_our_sections(dassl.config)

__all__ = [
    "cocoamix",
    "cocoop",
    "coop",
    "dept",
    "extend_cfg",
    "fscil",
    "kgcoop",
    "maple",
    "prograd",
    "tune_en",
    "zsclip",
]
