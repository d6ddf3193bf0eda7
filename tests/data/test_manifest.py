"""A draw is exported as a small file and imported as the same draw: the same images, or a list of differences."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from cocoamix.data.command import main
from tests.conftest import write_dataset
from tests.datasets.own import classes
from tests.datasets.test_base import eurosat, rows


@pytest.fixture
def two_machines(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Two copies of the same data, and a draw exported from the first."""
    here = write_dataset(tmp_path / "here")
    there = shutil.copytree(here, tmp_path / "there")
    out = tmp_path / "draw.json"
    assert main(["export", "EuroSAT", "--root", str(here), "--shots", "3", "--seed", "2", "--out", str(out)]) == 0
    return here, there, out


def test_manifest_lists_the_draw_with_hashes(two_machines: tuple[Path, Path, Path]) -> None:
    here, _, out = two_machines
    content = json.loads(out.read_text())
    drawn = eurosat(here, num_shots=3, seed=2)
    assert (content["dataset"], content["shots"], content["seed"], content["version"]) == ("EuroSAT", 3, 2, 1)
    assert content["classnames"] == drawn.classnames
    for key, items in (("train", drawn.train_x), ("val", drawn.val)):
        assert content[key] == [
            [
                str(Path(item.impath).relative_to(here.resolve() / "eurosat")),
                item.label,
                hashlib.sha256(Path(item.impath).read_bytes()).hexdigest(),
            ]
            for item in items
        ]
    assert str(here) not in out.read_text()
    assert out.stat().st_size < 200 * 70


def test_the_other_machine_gets_the_same_draw(two_machines: tuple[Path, Path, Path], capsys: Any) -> None:
    """Even if its own draw would differ: the manifest is of seed 2, saved under the name of seed 2."""
    here, there, out = two_machines
    content = json.loads(out.read_text())
    content["seed"] = 5  # an image of seed 2 that seed 5 would not draw
    out.write_text(json.dumps(content))
    own = rows(eurosat(there, num_shots=3, seed=5).train_x, there)
    shutil.rmtree(there / "eurosat" / "split_fewshot")
    assert main(["import", str(out), "--root", str(there)]) == 0
    imported = eurosat(there, num_shots=3, seed=5)
    wanted = eurosat(here, num_shots=3, seed=2)
    assert rows(imported.train_x, there) == rows(wanted.train_x, here) != own
    assert rows(imported.val, there) == rows(wanted.val, here)
    cache = there / "eurosat" / "split_fewshot" / "shot_3-seed_5.pkl"
    kept = pickle.loads(cache.read_bytes())
    assert sorted(kept) == ["train", "val"]
    assert type(kept["train"][0]).__module__ == "dassl.data.datasets.base_dataset"


def test_differences_are_listed(two_machines: tuple[Path, Path, Path], capsys: Any) -> None:
    _, there, out = two_machines
    train = json.loads(out.read_text())["train"]
    folder = there / "eurosat" / "2750"
    (folder.parent / train[0][0]).unlink()
    (folder.parent / train[1][0]).write_bytes(b"another")
    # The loader of this dataset requires every image of its split.
    split = json.loads((folder.parent / "split_zhou_EuroSAT.json").read_text())
    gone, moved = (train[number][0].removeprefix("2750/") for number in (0, 2))
    split["train"] = [row for row in split["train"] if row[0] not in (gone, moved)]
    (folder.parent / "split_zhou_EuroSAT.json").write_text(json.dumps(split))
    capsys.readouterr()
    assert main(["import", str(out), "--root", str(there)]) == 1
    printed = capsys.readouterr().out
    assert "3 differences" in printed
    assert f"{train[0][0]}: missing" in printed
    assert f"{train[1][0]}: a different image" in printed
    assert f"{train[2][0]}: not among the train images here" in printed
    assert not (folder.parent / "split_fewshot").exists()


def test_differing_labels_and_names_are_listed(two_machines: tuple[Path, Path, Path], capsys: Any) -> None:
    _, there, out = two_machines
    file = there / "eurosat" / "split_zhou_EuroSAT.json"
    split = json.loads(file.read_text())
    swap = {0: 1, 1: 0}
    for part in split.values():
        for row in part:
            row[1] = swap.get(row[1], row[1])
    file.write_text(json.dumps(split))
    capsys.readouterr()
    assert main(["import", str(out), "--root", str(there)]) == 1
    printed = capsys.readouterr().out
    assert "class 0 is 'Annual Crop Land' in the manifest and 'Forest' here" in printed
    assert "label 0 in the manifest, 1 here" in printed


def test_another_draw_is_not_replaced(two_machines: tuple[Path, Path, Path], capsys: Any) -> None:
    here, there, out = two_machines
    assert main(["import", str(out), "--root", str(there)]) == 0
    assert main(["import", str(out), "--root", str(there)]) == 0
    assert "already has this draw" in capsys.readouterr().out
    cache = there / "eurosat" / "split_fewshot" / "shot_3-seed_2.pkl"
    eurosat(there, num_shots=3, seed=9)
    shutil.copy(cache.with_name("shot_3-seed_9.pkl"), cache)
    before = cache.read_bytes()
    assert main(["import", str(out), "--root", str(there)]) == 2
    assert "has another draw" in capsys.readouterr().err
    assert cache.read_bytes() == before
    assert main(["import", str(out), "--root", str(there), "--force"]) == 0
    assert rows(eurosat(there, num_shots=3, seed=2).train_x, there) == rows(
        eurosat(here, num_shots=3, seed=2).train_x, here
    )
    cache.write_bytes(b"rubbish")
    assert main(["import", str(out), "--root", str(there)]) == 2
    assert cache.read_bytes() == b"rubbish"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (None, "does not exist"),
        ("rubbish", "is not valid JSON"),
        ("[1, 2]", "is not a cocoamix few-shot manifest"),
        ({"format": "x"}, "is not a cocoamix few-shot manifest"),
        ({"version": 2}, "version 2"),
        ({"train": [["../../etc/passwd", 0, "0" * 64]]}, "not below a dataset's folder"),
        ({"train": [["/etc/passwd", 0, "0" * 64]]}, "not below a dataset's folder"),
        ({"train": [["2750/a.png", 10, "0" * 64]]}, "damaged"),
        ({"train": [["2750/a.png", "0", "0" * 64]]}, "damaged"),
        ({"train": [["2750/a.png", 0]]}, "damaged"),
        ({"train": [["2750/a.png", False, "0" * 64]]}, "label False"),
        ({"train": [["2750/a.png", 0.0, "0" * 64]]}, "label 0.0"),
        ({"train": [["2750/a.png", 0, "x" * 64]]}, "SHA-256"),
        ({"train": [["2750/a.png", 0, "0" * 64], ["2750/./a.png", 0, "0" * 64]]}, "occurs twice"),
        ({"train": []}, "no train image of the class 0"),
        ({"train": None}, "not a list"),
        ({"classnames": []}, "classnames"),
        ({"shots": "4"}, "damaged"),
        ({"shots": 0}, "its shots is 0"),
        ({"shots": True}, "its shots is True"),
        ({"shots": 2}, "3 train images of the class 0 (Annual Crop Land), not 2"),
        ({"seed": 1.0}, "its seed is 1.0"),
        ({"seed": -1}, "its seed is -1"),
        ({"dataset": "Nowhere"}, "no dataset 'Nowhere'"),
    ],
)
def test_unusable_manifests_are_refused(
    two_machines: tuple[Path, Path, Path], change: Any, words: str, capsys: Any
) -> None:
    _, there, out = two_machines
    if change is None:
        out.unlink()
    else:
        text = json.dumps({**json.loads(out.read_text()), **change}) if isinstance(change, dict) else change
        out.write_text(text)
    assert main(["import", str(out), "--root", str(there)]) == 2
    assert words in capsys.readouterr().err
    assert not (there / "eurosat" / "split_fewshot").exists()


def test_too_many_validation_images_are_refused(two_machines: tuple[Path, Path, Path], capsys: Any) -> None:
    _, there, out = two_machines
    content = json.loads(out.read_text())
    content["val"] = [[f"2750/{number}.png", 0, "0" * 64] for number in range(5)]
    out.write_text(json.dumps({**content, "shots": 5}))
    assert main(["import", str(out), "--root", str(there)]) == 2
    assert "5 val images of the class 0 (Annual Crop Land), not 4" in capsys.readouterr().err


def test_a_missing_split_file_is_never_drawn(two_machines: tuple[Path, Path, Path], capsys: Any) -> None:
    """A newly drawn split would not be the other lab's, and the data folder must not change."""
    _, there, out = two_machines
    (there / "eurosat" / "split_zhou_EuroSAT.json").unlink()
    before = sorted(there.rglob("*"))
    other = out.with_name("other.json")
    where = ["--root", str(there)]
    for command in (["import", str(out)], ["export", "eurosat", "--shots", "1", "--seed", "1", "--out", str(other)]):
        assert main([*command, *where]) == 2
        printed = capsys.readouterr().err
        assert "split_zhou_EuroSAT.json is missing" in printed
        assert "gdown 1Ip7yaCWFi0eaOFUGga0lUdVi_DDQth1o" in printed
        assert f"cocoamix data download EuroSAT --root {there}" in printed
    assert sorted(there.rglob("*")) == before
    assert not other.exists()


def test_export_saves_no_draw_and_prints_the_notes(two_machines: tuple[Path, Path, Path], capsys: Any) -> None:
    here, there, out = two_machines
    where = ["--root", str(here), "--shots", "1", "--seed", "1", "--out", str(out.with_name("other.json"))]
    assert main(["export", "EuroSAT", *where]) == 0
    assert "Reading split from" in capsys.readouterr().out
    assert not (here / "eurosat" / "split_fewshot").exists()
    assert main(["import", str(out), "--root", str(there)]) == 0
    assert "Reading split from" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("SEED", "3"),
        ("DATASET.NUM_SHOTS", "1"),
        ("DATASET.SUBSAMPLE_CLASSES", "base"),
        ("DATASET.ROOT", "."),
        ("DATASET.NAME", "Shapes"),
    ],
)
def test_options_that_determine_a_draw(
    two_machines: tuple[Path, Path, Path], key: str, value: str, capsys: Any
) -> None:
    _, there, out = two_machines
    other = out.with_name("other.json")
    for command in (["import", str(out)], ["export", "eurosat", "--shots", "1", "--seed", "1", "--out", str(other)]):
        assert main([*command, "--root", str(there), key, value]) == 2
        assert f"{key} cannot be changed here" in capsys.readouterr().err
    assert not other.exists()
    assert not (there / "eurosat" / "split_fewshot").exists()


def test_unwritable_export_is_reported(tmp_path: Path, capsys: Any) -> None:
    root = write_dataset(tmp_path / "data")
    (tmp_path / "file").touch()
    for out, words in ((tmp_path, "is a folder"), (tmp_path / "file" / "draw.json", "cannot be written")):
        assert main(["export", "eurosat", "--root", str(root), "--shots", "1", "--seed", "1", "--out", str(out)]) == 2
        assert words in capsys.readouterr().err


def test_draw_of_a_user_folder_is_imported(tmp_path: Path) -> None:
    classes(tmp_path / "a", "cat", "dog")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    out = str(tmp_path / "draw.json")
    where = ["--shots", "2", "--seed", "1", "--out", out]
    assert main(["export", "folder", "--root", str(tmp_path / "a"), *where, "DATASET.SPLIT", "[0.6, 0.0, 0.4]"]) == 0
    assert main(["import", out, "--root", str(tmp_path / "b"), "DATASET.SPLIT", "[0.6, 0.0, 0.4]"]) == 0
    kept = pickle.loads((tmp_path / "b" / "split_fewshot" / "shot_2-seed_1.pkl").read_bytes())
    assert (len(kept["train"]), kept["val"]) == (4, [])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["Shapes", "--shots", "2", "--seed", "1"], "not separate files"),
        (["EuroSAT", "--shots", "0", "--seed", "1"], "at least 1"),
        (["EuroSAT", "--shots", "2", "--seed", "-1"], "--seed is -1"),
        (["EuroSAT", "--shots", "7", "--seed", "1"], "fewer training images"),
    ],
)
def test_export_without_a_draw_is_refused(tmp_path: Path, arguments: list[str], words: str, capsys: Any) -> None:
    root = write_dataset(tmp_path / "data")
    assert main(["export", *arguments, "--root", str(root), "--out", str(tmp_path / "x.json")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "x.json").exists()


def test_validation_images_that_are_test_images_are_not_exported(
    two_machines: tuple[Path, Path, Path], monkeypatch: Any, capsys: Any
) -> None:
    """As on ImageNet in CoOp: the draw contains only training images, and so does the saved file."""
    _, there, out = two_machines
    from cocoamix.datasets.eurosat import EuroSAT

    monkeypatch.setattr(EuroSAT, "val", property(lambda self: self.test))
    command = ["export", "EuroSAT", "--root", str(there), "--shots", "1", "--seed", "1", "--out", str(out)]
    assert main(command) == 0
    content = json.loads(out.read_text())
    assert (content["val"], len(content["train"])) == (None, 10)
    cache = there / "eurosat" / "split_fewshot" / "shot_1-seed_1.pkl"
    assert not cache.exists()  # an export saves no draw
    assert main(["import", str(out), "--root", str(there)]) == 0
    assert sorted(pickle.loads(cache.read_bytes())) == ["train"]
