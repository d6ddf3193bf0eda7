"""Names and their order: user datasets, numbers in names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cocoamix.report.build import build
from cocoamix.report.names import natural, sort_datasets
from cocoamix.report.readers.own_names import own_name
from tests.experiments.trees import head, result, training, write_log, write_pair


@pytest.mark.parametrize(
    ("dataset", "settings", "name"),
    [
        ("ImageFolderDataset", {"ROOT": "/data/my_birds"}, "my_birds"),
        ("cocoamix.ImageFolderDataset", {"ROOT": "/data/my_birds/"}, "my_birds"),
        ("ImageFolderDataset", {"ROOT": "/data", "FOLDER": "birds/2024"}, "2024"),
        ("ImageFolderDataset", {"ROOT": "/data/birds/images"}, "birds/images"),
        ("ImageFolderDataset", {"ROOT": r"C:\data\birds"}, "birds"),
        ("ImageFolderDataset", {"ROOT": "../eurosat"}, "eurosat (own images)"),
        ("CSVDataset", {"ROOT": "/data/birds", "CSV": "labels.csv"}, "birds (labels)"),
        ("CSVDataset", {"ROOT": "/data/birds", "CSV": ""}, "birds"),
        ("CSVDataset", {"ROOT": "", "CSV": "lists/wild.tsv"}, "wild"),
        ("ImageFolderDataset", {"ROOT": "."}, ""),
        ("ImageFolderDataset", {"ROOT": 3.0}, ""),
        ("ImageFolderDataset", {"ROOT": "/data/a\x1b[31m"}, "a\\x1b[31m"),
        ("EuroSAT", {"ROOT": "/data/my_birds"}, ""),
    ],
)
def test_user_datasets_are_named_after_their_folders(dataset: str, settings: dict[str, Any], name: str) -> None:
    assert own_name(dataset, {f"DATASET.{key}": value for key, value in settings.items()}) == name


def test_report_names_user_datasets(tmp_path: Path) -> None:
    for folder, accuracy in (("birds", 80.0), ("my cars", 70.0)):
        config = {"DATASET": {"NAME": "ImageFolderDataset", "ROOT": f"/data/{folder}"}}
        write_pair(
            tmp_path / folder,
            accuracy,
            accuracy,
            dataset="ImageFolderDataset",
            config=config,
            protocol={"splits": {"test": folder}},
        )
    tables = build([tmp_path]).sections[0].tables
    assert [table.title for table in tables[:3]] == ["Average over 2 datasets", "birds", "my cars"]
    assert [table.lines[0].values[0].mean for table in tables[:3]] == [75.0, 80.0, 70.0]


def test_log_names_user_datasets(tmp_path: Path) -> None:
    text = head("CoOp", "ImageFolderDataset").replace("ROOT: /data", "ROOT: /data/birds")
    write_log(tmp_path / "run", text, training(), result(700))
    assert build([tmp_path]).sections[0].tables[0].title == "birds"


@pytest.mark.parametrize("names", [("鳥", "花"), ("my birds", "my_birds")])
def test_tables_of_user_datasets_have_unique_keys(tmp_path: Path, names: tuple[str, str]) -> None:
    for folder in names:
        config = {"DATASET": {"NAME": "ImageFolderDataset", "ROOT": f"/data/{folder}"}}
        write_pair(tmp_path / folder, 80.0, 70.0, dataset="ImageFolderDataset", config=config)
    keys = [one.key for section in build([tmp_path]).sections for one in (*section.tables, *section.charts)]
    assert len(set(keys)) == len(keys)


def test_numbers_in_names_sort_as_numbers() -> None:
    names = ["random:2", "random:10", "random:1"]
    assert sorted(names, key=natural) == ["random:1", "random:2", "random:10"]
    assert sorted(["LR=0.01", "LR=0.002", "LR=1e-05"], key=natural) == ["LR=1e-05", "LR=0.002", "LR=0.01"]
    assert sort_datasets(["set 10", "set 9", "EuroSAT"]) == ["EuroSAT", "set 9", "set 10"]


def test_partitions_sort_as_numbers(tmp_path: Path) -> None:
    for number in (10, 2):
        write_pair(tmp_path / str(number), 80.0, 70.0, protocol={"partition": f"random:{number}"})
    lines = build([tmp_path]).sections[0].tables[0].lines
    assert [line.label for line in lines] == ["CoOp [partition=random:2]", "CoOp [partition=random:10]"]
