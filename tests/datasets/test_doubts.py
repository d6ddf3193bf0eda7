"""A readable split that is wrong: one image in two splits, labels and names that do not match."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from cocoamix.errors import UserError
from tests.conftest import SHARED, needs
from tests.datasets import layouts
from tests.datasets.own import classes, folder, table, write_image
from tests.datasets.test_base import config, eurosat


def edit(data_root: Path) -> Any:
    """Return the rows of the split, and a function that writes them back."""
    path = data_root / "eurosat" / "split_zhou_EuroSAT.json"
    content = json.loads(path.read_text())
    return content, lambda: path.write_text(json.dumps(content))


@pytest.mark.parametrize(("one", "other"), [("train", "test"), ("val", "test"), ("train", "val")])
def test_an_image_in_two_splits_is_reported(
    data_root: Path, capsys: pytest.CaptureFixture[str], one: str, other: str
) -> None:
    content, write = edit(data_root)
    row = content[one][0]
    content[other].append(row)
    write()
    eurosat(data_root)
    printed = capsys.readouterr().out
    assert (
        f"WARNING: {data_root / 'eurosat' / 'split_zhou_EuroSAT.json'}: 1 images are in both {one} and {other}"
        in printed
    )
    assert row[0] in printed


def test_two_labels_with_one_name_are_reported(data_root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, write = edit(data_root)
    for rows in content.values():
        for row in rows:
            row[2] = "forest" if row[2] == "River" else row[2]
    write()
    eurosat(data_root)
    assert "1 class names have several labels; the first is 'Forest' (1 and 8)" in capsys.readouterr().out


def test_two_names_for_one_label_are_refused(data_root: Path) -> None:
    """Which of them became the class name would change between starts."""
    content, write = edit(data_root)
    content["train"][-1][2] = "Pond"
    write()
    with pytest.raises(UserError, match=r"split_zhou_EuroSAT\.json: the label 9 is 'Sea or Lake', but 'Pond' for"):
        eurosat(data_root)


@needs("data/splits")
@pytest.mark.parametrize("name", layouts.PUBLISHED)
def test_coops_splits_give_no_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    import cocoamix.datasets  # noqa: F401
    from cocoamix.datasets.common import base, splits

    # isort: split
    from dassl.data.datasets import DATASET_REGISTRY

    for module in (base, splits):  # creating the images would take seconds
        monkeypatch.setattr(module, "refuse_missing", lambda *arguments: None)
    folder, images = layouts.FOLDERS[name]
    (tmp_path / folder / images).mkdir(parents=True)
    shutil.copy(SHARED / "data" / "splits" / f"split_zhou_{name}.json", tmp_path / folder)
    DATASET_REGISTRY.get(name)(config(tmp_path))
    printed = capsys.readouterr().out
    assert "Reading split" in printed
    assert "WARNING" not in printed


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_user_image_in_two_splits_is_refused(tmp_path: Path, link: Any) -> None:
    for split in ("train", "test"):
        classes(tmp_path / split, "cat", "dog", count=3)
    folder(tmp_path)
    link(write_image(tmp_path / "train" / "cat" / "more.png"), tmp_path / "test" / "cat" / "again.png")
    with pytest.raises(UserError, match=r"again\.png \(test\) and .*more\.png \(train\) are the same file"):
        folder(tmp_path)


def test_a_table_that_lists_a_file_twice_is_refused(tmp_path: Path) -> None:
    classes(tmp_path, "cat", "dog", count=3)
    os.link(tmp_path / "cat" / "0.png", tmp_path / "cat" / "copy.png")
    rows = ["cat/0.png,cat,train", "cat/copy.png,cat,test", "dog/0.png,dog,train", "dog/1.png,dog,test"]
    (tmp_path / "list.csv").write_text("\n".join(["path,classname,split", *rows]))
    with pytest.raises(UserError, match="are the same file"):
        table(tmp_path)
