"""The table of keys, and the defaults and the page generated from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from dassl.config import get_cfg_default

from cocoamix.config import document, extend_cfg
from cocoamix.config.key import Key
from cocoamix.config.settings import flatten
from cocoamix.config.table import KEYS, SECTIONS

OURS = [key for key in KEYS if key.ours]


def test_every_key_is_declared_once() -> None:
    names = [key.name for key in KEYS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("key", OURS, ids=lambda key: key.name)
def test_our_keys_are_explained_and_allow_their_defaults(key: Key) -> None:
    assert key.comment.endswith(".")
    assert not key.is_pattern
    key.check(key.default)


def test_dassl_keys_exist_in_dassl() -> None:
    """A name that Dassl does not declare would never be checked."""
    dassls = flatten(get_cfg_default())
    named = [key.name for key in KEYS if not key.ours and not key.is_pattern]
    assert [name for name in named if name not in dassls] == []


def test_changing_a_configuration_does_not_change_the_table() -> None:
    one, two = get_cfg_default(), get_cfg_default()
    for cfg in (one, two):
        for name in ("BACKBONES", "PROMPTS"):
            cfg.TRAINER.get("ENLEARN", {}).pop(name, None)
        extend_cfg(cfg)
    one.TRAINER.ENLEARN.BACKBONES.append("ViT-L/14")
    assert len(two.TRAINER.ENLEARN.BACKBONES) == 4
    assert next(len(key.default) for key in KEYS if key.name == "TRAINER.ENLEARN.BACKBONES") == 4


def test_the_page_is_up_to_date() -> None:
    assert document.PAGE.read_text(encoding="utf-8") == document.page(), (
        "docs/KEYS.md is stale: run `python -m cocoamix.config.document`"
    )


def test_the_page_has_every_key() -> None:
    """By its full name; in its row, without the beginning that is named above the table."""
    page = document.page()
    parts = dict(part.split("\n", 1) for part in page.split("\n## "))
    for section in SECTIONS:
        for key in [key for key in section.keys if key.ours] or section.keys:
            assert f"`{key.name}`" in page
            name = key.name.rpartition(".")[2] if key.ours else key.name
            row = rf"^\|.*`([\w.]+\.)?{re.escape(name)}`.* \| .*{re.escape(document._allowed(key))}"
            assert re.search(row, parts[section.title], re.M), key.name


def test_keys_without_effect_share_a_row() -> None:
    page = document.page()
    (row,) = [line for line in page.splitlines() if "`WEIGHT_RN50`" in line]
    assert row.startswith("| `WEIGHTS_SEARCH`, `SEARCH_EVAL`, `WEIGHT_RN50`, `WEIGHT_RN101`, ")
    assert "| `False`; `1.0` | only `False`; only `1.0` |" in row


def test_the_page_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert document.main([str(tmp_path / "KEYS.md")]) == 0
    assert (tmp_path / "KEYS.md").read_text(encoding="utf-8") == document.page()
    assert document.main([str(tmp_path / "nowhere" / "KEYS.md")]) == 2
    assert "nowhere" in capsys.readouterr().err
