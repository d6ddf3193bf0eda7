"""Reading files written by people: any problem is reported in one short sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cocoamix.errors import UserError
from cocoamix.io.spreadsheets import text_cell
from cocoamix.io.texts import read_json, read_text, read_yaml

ALIASES = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("day: 2024-13-99", "an invalid date or number"),
        ("when: 2024-01-01 99:99:99", "an invalid date or number"),
        ("n: !!float x", "an invalid date or number"),
        ("n: " + "9" * 5000, "an invalid date or number"),
        ("[" * 5000, "is nested too deeply"),
        ("{a: " * 60 + "1" + "}" * 60, "is nested too deeply"),
        ("a: &a [*a]", "is nested too deeply"),
        (ALIASES, "far more values"),
        ("a: [1\nb: 2", "is not valid YAML: expected ',' or ']', but got ':' (line 2, column 2)"),
        ("a: \x00", "is not valid YAML"),
        ("!!python/object:os.system x", "is not valid YAML"),
        ("\udcff", "is not UTF-8: see line 1"),
    ],
)
def test_invalid_yaml_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "file.yaml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError) as raised:
        read_yaml(path)
    assert words in str(raised.value)
    assert str(raised.value).startswith(str(path))
    assert len(str(raised.value)) < 300
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [("[" * 100_000, "nested too deeply"), ("9" * 5000, "too many digits"), ("{", "is not valid JSON")],
)
def test_invalid_json_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(UserError, match=words):
        read_json(path)


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "loop", "long", "zero"])
def test_paths_that_are_not_files_are_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("x" * 300 if kind == "long" else "a\0b" if kind == "zero" else "file")
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    with pytest.raises(UserError) as raised:
        read_text(path)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        (" =1", "' =1"),
        ("-x", "'-x"),
        ("-1.5", "-1.5"),
        ("+3", "+3"),
        ("CoOp", "CoOp"),
        ("\t=1", "\\t=1"),
        ("", ""),
    ],
)
def test_text_cells_are_escaped_for_spreadsheets(text: str, cell: str) -> None:
    assert text_cell(text) == cell


def test_a_long_path_loses_its_middle_in_the_message(tmp_path: Path) -> None:
    path = tmp_path / ("a b " * 200) / "end.yaml"
    with pytest.raises(UserError, match=r"end\.yaml cannot be read") as raised:
        read_yaml(path)
    assert len(str(raised.value)) < 400
