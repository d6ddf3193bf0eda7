"""The table of keys: every key of this project, and those of Dassl that are checked or have a special role.

A key is declared only here. Defaults (`cocoamix.config.defaults`), checks (`cocoamix.config.checks`), roles
(`cocoamix.config.roles`) and the page docs/KEYS.md (`python -m cocoamix.config.document`) are derived from it.
"""

from __future__ import annotations

from cocoamix.config.key import Key

from . import cocoamix, contexts, dassl, data, ensembles, fscil, fscil_methods
from .section import Section

SECTIONS: tuple[Section, ...] = (
    *data.SECTIONS,
    *contexts.SECTIONS,
    *cocoamix.SECTIONS,
    *ensembles.SECTIONS,
    *fscil.SECTIONS,
    *fscil_methods.SECTIONS,
    *dassl.SECTIONS,
)
KEYS: tuple[Key, ...] = tuple(key for section in SECTIONS for key in section.keys)
