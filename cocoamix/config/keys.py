"""The configuration as trainers and commands use it: our defaults, the merging of files and flags, the checks.

Every key is declared in `cocoamix.config.table`.
"""

from __future__ import annotations

from .checks import (
    check_below,
    check_common,
    check_enlearn,
    check_heldout,
    check_method,
    check_mix,
    check_prograd,
    check_sessions,
    context_words,
)
from .defaults import complete, extend_cfg
from .merge import merge_file, merge_options, merge_recorded, merge_settings, merge_value

__all__ = [
    "check_below",
    "check_common",
    "check_enlearn",
    "check_heldout",
    "check_method",
    "check_mix",
    "check_prograd",
    "check_sessions",
    "complete",
    "context_words",
    "extend_cfg",
    "merge_file",
    "merge_options",
    "merge_recorded",
    "merge_settings",
    "merge_value",
]
