"""The table of predictions: what is written is read back, and damaged tables are refused."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from cocoamix.errors import UserError, encodable, printable
from cocoamix.io.files import open_text_atomically
from cocoamix.io.spreadsheets import cell_text, text_cell
from cocoamix.run.predictions import (
    UNKNOWN,
    CSVWriter,
    JSONWriter,
    PredictionsFile,
    Record,
    header,
    make_record,
    read_predictions,
    unreadable_record,
)
from cocoamix.seeding import derive_seed

UNUSUAL = ["=1+1", "'=1+1", "''=x", "-5", " +a", "@x", "'", "''", "a,b", 'say "x"', "ünï 日本", "a'=b", "- 5", "'-5"]
CLASSES = ["cat", "dog", "=cmd"]


def records() -> list[Record]:
    """Records of every kind, with unusual names."""
    found = [make_record(f"{text}.png", text, [0.25, 0.5, 0.25], [*CLASSES[:2], text], 2) for text in UNUSUAL]
    found.append(make_record("unknown.png", "zebra", [0.25, 0.5, 0.25], CLASSES, 2, threshold=0.75))
    found.append(make_record("no label.png", "", [1, 0, 0], CLASSES, 2))
    return [*found, unreadable_record("bad.png", "cat", "it is no image"), unreadable_record("bad 2.png", "", "=gone")]


def write(path: Path, some: list[Record]) -> Path:
    with open_text_atomically(path) as file:
        writer = CSVWriter(file, 2)
        for record in some:
            writer.add(record)
    return path


def test_records_round_trip(tmp_path: Path) -> None:
    assert read_predictions(write(tmp_path / "p.csv", records())) == records()


@pytest.mark.parametrize("text", UNUSUAL)
def test_cells_round_trip(text: str) -> None:
    cell = text_cell(text)
    assert cell_text(cell) == text
    # A spreadsheet evaluates none of it, unless it is a number.
    assert cell.lstrip()[:1] not in ("=", "+", "@")
    assert not cell.lstrip().startswith("-") or float(cell)


def test_older_tables_are_read(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text(
        "image,label,predicted,confidence,label_probability,class_1,probability_1\na.png,,cat,0.5,,cat,0.5\n"
    )
    assert read_predictions(path) == [Record("a.png", "", "cat", 0.5, None, (("cat", 0.5),))]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("image,", "photo,", "is not a table of predictions: its first line has no column 'image'"),
        ("class_2", "class_1", "has no column 'class_2'"),
        ("probability_2,error", "probability_2,image,error", "names a column twice"),
        ("0.250000,\n", "0.25\n", "line 2: there are 9 cells, but 10 columns"),
        ("0.500000,", "much,", "line 2: the confidence is 'much', not a number from 0 to 1"),
        ("0.500000,", "nan,", "the confidence is 'nan'"),
        ("0.500000,", "1.5,", "the confidence is '1.5'"),
        ("a.png,", ",", "line 2: the image is empty"),
        (",dog,0.5", ",,0.5", "line 2: there is neither a prediction nor an error"),
        ("dog,0.5", 'd"og"x,"0.5', "line 2"),
    ],
)
def test_damaged_tables_are_refused(tmp_path: Path, before: str, after: str, words: str) -> None:
    path = write(tmp_path / "p.csv", [make_record("a.png", "cat", [0.25, 0.5, 0.25], CLASSES, 2)])
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    with pytest.raises(UserError, match=words) as caught:
        read_predictions(path)
    assert str(path) in str(caught.value)


def test_missing_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        read_predictions(tmp_path / "p.csv")


def test_correctness_of_predictions() -> None:
    def correct(label: str, threshold: float = 0.0) -> bool | None:
        return make_record("a", label, [0.25, 0.5, 0.25], CLASSES, 1, threshold).correct

    assert (correct("dog"), correct("cat"), correct("zebra"), correct("")) == (True, False, False, None)
    # Marked as no class: correct only for a label that is none of the classes.
    assert (correct("dog", 0.6), correct("zebra", 0.6), correct("", 0.6)) == (False, True, None)
    assert make_record("a", "dog", [0.25, 0.5, 0.25], CLASSES, 1, 0.6).predicted == UNKNOWN
    assert unreadable_record("a", "dog", "gone").correct is None


def test_names_that_are_not_utf8_are_escaped(tmp_path: Path) -> None:
    record = make_record("caf\udce9.png", "\udcff", [1, 0, 0], CLASSES, 2)
    path = write(tmp_path / "p.csv", [record])
    assert b"caf\\xe9.png,\\xff,cat" in path.read_bytes()
    assert read_predictions(path)[0].image == "caf\\xe9.png"
    with open_text_atomically(tmp_path / "p.json") as file:
        writer = JSONWriter(file, {"run": "here"})
        writer.add(record)
        writer.add(unreadable_record("\udce9.png", "", "gone \udce9"))
        writer.end([])
    content = json.loads((tmp_path / "p.json").read_bytes().decode("utf-8"))
    assert content["run"] == "here"
    assert content["images"][0]["image"] == "caf\\xe9.png"
    assert content["unreadable"] == [{"image": "\\xe9.png", "error": "gone \\xe9"}]
    assert printable("\udce9\x1b\ud800") == "\\xe9\\x1b\\ud800"
    assert encodable("\udce9\x1b\ud800") == "\\xe9\x1b\\ud800"
    assert derive_seed(1, "caf\udce9.png") != derive_seed(1, "caf\udcea.png")
    assert derive_seed(1, "café.png") == 495880194  # as before such names were supported


def test_classes_with_equal_names_are_numbered(tmp_path: Path) -> None:
    import torch

    with PredictionsFile(str(tmp_path), ["missile", "cat", "Missile"]) as file:
        file.add(torch.tensor([[2.0, 0, 5], [5, 0, 2]]), torch.tensor([2, 2]), ["a", "b"])
    first, second = read_predictions(tmp_path / "predictions.csv")
    assert (first.label, first.predicted, first.correct) == ("Missile (2)", "Missile (2)", True)
    assert (second.label, second.predicted, second.correct) == ("Missile (2)", "missile (1)", False)
    assert second.label_probability == pytest.approx(0.047, abs=1e-3)


def test_columns_match_their_header() -> None:
    file = io.StringIO()
    CSVWriter(file, 2).add(unreadable_record("a", "cat", "gone"))
    head, row = csv.reader(file.getvalue().splitlines())
    assert head == header(2)
    assert dict(zip(head, row, strict=True))["error"] == "gone"


def test_reading_needs_no_torch() -> None:
    code = "import sys, cocoamix.run.predictions; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
