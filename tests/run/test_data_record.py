"""A finished run is finished for its data alone: what counts as the same images, and what is refused."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cocoamix.errors import UserError
from cocoamix.io import digest_cache
from cocoamix.run import data_record
from cocoamix.run.data_record import DataRecord, Scan, difference, record, run_difference
from cocoamix.run.results import Results
from cocoamix.train import parse_arguments, read_dataset, setup_cfg
from tests.conftest import Run, Runner, command


@dataclass
class Item:
    impath: str
    label: int = 0
    classname: str = "cat"


@dataclass
class Drawn(Item):
    identity: str = "drawn by version 1"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COCOAMIX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / digest_cache.FILE


def write(root: Path, files: dict[str, bytes]) -> list[Item]:
    """Write files with a fixed old time and return their items."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, ns=(10**18, 10**18))
    return items_below(root)


def items_below(root: Path) -> list[Item]:
    return [Item(str(path), len(path.parent.name), path.parent.name) for path in root.rglob("*") if path.is_file()]


FILES = {"cat/1.jpg": b"one", "cat/2.jpg": b"two", "dogs/1.jpg": b"three"}


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    real, read = data_record._digest, list[str]()
    monkeypatch.setattr(data_record, "_digest", lambda path: read.append(path) or real(path))  # type: ignore[func-returns-value]
    return read


# ---------------------------------------------------------------------- what is the same data


def test_the_same_images_are_the_same_data_wherever_they_are(tmp_path: Path) -> None:
    items = write(tmp_path / "a", FILES)
    then = record(items, str(tmp_path / "a"))
    assert difference(then, items[::-1], str(tmp_path / "a")) == ""
    moved = write(tmp_path / "elsewhere" / "b", FILES)
    for item in moved:
        os.utime(item.impath, ns=(5, 5))  # as a copy without its times
    assert difference(then, moved, str(tmp_path / "elsewhere" / "b")) == ""
    (tmp_path / "link").symlink_to(tmp_path / "a")
    linked = items_below(tmp_path / "link")
    assert len(linked) == 3
    assert difference(then, linked, str(tmp_path / "link")) == ""
    assert record(items_below(tmp_path / "a"), f"{tmp_path}/link/../a/") == then


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "grown": (lambda root: write(root, {"dogs/2.jpg": b"four"}), "3 images then, 4 now"),
    "shrunk": (lambda root: (root / "cat/1.jpg").unlink(), "3 images then, 2 now"),
    "renamed": (lambda root: (root / "cat/1.jpg").rename(root / "cat/3.jpg"), "names"),
    "another class": (lambda root: (root / "dogs").rename(root / "wolves"), "names"),
    "other size": (lambda root: (root / "cat/1.jpg").write_bytes(b"longer"), "sizes"),
    "same size": (lambda root: (root / "cat/1.jpg").write_bytes(b"ONE"), "contents"),
    "touched": (lambda root: (root / "cat/1.jpg").touch(), ""),
    "swapped": (lambda root: write(root, {"cat/1.jpg": b"two", "cat/2.jpg": b"one"}), ""),  # their times are kept
}


@pytest.mark.parametrize("kind", CHANGES)
def test_changes_are_named(kind: str, tmp_path: Path) -> None:
    then = record(write(tmp_path / "data", FILES), str(tmp_path / "data"))
    change, words = CHANGES[kind]
    change(tmp_path / "data")
    found = difference(then, items_below(tmp_path / "data"), str(tmp_path / "data"))
    assert words in found
    assert bool(found) == bool(words)


def test_other_labels_of_the_same_files_are_other_data(tmp_path: Path) -> None:
    items = write(tmp_path, FILES)
    then = record(items, str(tmp_path))
    assert "labels" in difference(then, [replace(items[0], label=9), *items[1:]], str(tmp_path))
    assert "labels" in difference(then, [replace(items[0], classname="lynx"), *items[1:]], str(tmp_path))


def test_drawn_images_are_what_they_depend_on() -> None:
    items = [Drawn("set/cat/0.png"), Drawn("set/cat/1.png")]
    then = record(items, "")
    assert difference(then, items, "/any/root") == ""
    assert "contents" in difference(then, [*items[:1], replace(items[1], identity="version 2")], "")


_NAMES = st.text("ab/.\n\udce9é ", min_size=1, max_size=6).map(lambda name: f"d{name}f")
_TREES = st.dictionaries(_NAMES, st.integers(0, 3), max_size=5)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_TREES, _TREES, st.randoms())
def test_records_are_equal_exactly_if_the_images_are(one: dict[str, int], other: dict[str, int], order: object) -> None:
    """Statuses and contents are stand-ins, so that any name is allowed."""

    def make(tree: dict[str, int], root: str) -> tuple[list[Item], Scan]:
        scan, paths = Scan(), [f"{root}/{name}" for name in tree]
        order.shuffle(paths)  # type: ignore[attr-defined]
        scan._statuses = {f"{root}/{name}": (size // 2, len(root)) for name, size in tree.items()}
        scan._digests = {f"{root}/{name}": str(size) for name, size in tree.items()}
        return [Item(path) for path in paths], scan

    (items, scan), (others, there) = make(one, "/a"), make(other, "/elsewhere")
    assert (difference(record(items, "/a", scan), others, "/elsewhere", there) == "") == (one == other)


# ---------------------------------------------------------------------- how often files are looked at


def test_contents_are_read_once_until_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items, read = write(tmp_path / "data", FILES), count_reads(monkeypatch)
    root = str(tmp_path / "data")
    then = record(items, root)
    assert len(read) == 3
    assert record(items, root) == then
    assert difference(then, items, root) == ""
    assert len(read) == 3
    (tmp_path / "data" / "cat/1.jpg").touch()
    assert difference(then, items, root) == ""
    assert len(read) == 4


def test_a_scan_looks_at_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    items, scan = write(tmp_path / "data", FILES), Scan()
    then = record(items, str(tmp_path / "data"), scan)
    shutil.rmtree(tmp_path / "data")
    assert difference(then, items, str(tmp_path / "data"), scan) == ""
    assert difference(then, items, str(tmp_path / "data")) != ""


def test_without_a_usable_cache_files_are_read_again(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items, root = write(tmp_path / "data", FILES), str(tmp_path / "data")
    then, read = record(items, root), count_reads(monkeypatch)
    with sqlite3.connect(own_cache) as holder:  # another run writes, and does not end
        holder.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr(digest_cache, "_SECONDS_TO_WAIT", 0.01)
        assert record(items, root) == then
    holder.close()
    own_cache.write_bytes(b"damaged" * 1000)
    assert record(items, root) == then
    own_cache.parent.rename(tmp_path / "away")
    (tmp_path / "cache").write_text("not a folder")
    assert record(items, root) == then
    assert len(read) == 9
    (tmp_path / "cache").unlink()
    (tmp_path / "away").rename(tmp_path / "cache")
    assert record(items, root) == then
    assert len(read) == 9  # the damaged table was replaced


def test_files_that_cannot_be_read_stop_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    items = [Item(str(tmp_path / name)) for name in ("pipe.jpg", "missing.jpg", "nul\0.jpg")]
    assert difference(record(items, str(tmp_path)), items, str(tmp_path)) == ""


def test_it_imports_neither_torch_nor_datasets() -> None:
    code = "import cocoamix.run.data_record, sys; assert not {'torch', 'pandas', 'cocoamix.datasets'} & {*sys.modules}"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---------------------------------------------------------------------- runs

FEW = ["DATASET.NUM_SHOTS", "2", "OPTIM.MAX_EPOCH", "2"]
SESSIONS = ["FSCIL.BASE", "6", "FSCIL.WAY", "2", "FSCIL.SHOTS", "2", "OPTIM.MAX_EPOCH", "1"]


def replace_images(root: Path, named: str) -> Path:
    """Replace images by damaged ones of the same size."""
    for path in root.rglob(named):
        content = bytearray(path.read_bytes())
        content[-20] ^= 1
        path.write_bytes(content)
    return root


def test_results_record_the_images_beside_the_fingerprint(
    run: Runner, data_root: Path, tmp_path: Path, tiny_config: Path
) -> None:
    done = run(*FEW, "DATASET.SUBSAMPLE_CLASSES", "base")
    data = Results.read(done.folder / "results.json").data
    assert data is not None
    assert data.training is not None
    assert (data.evaluated.images, data.training.images) == (20, 10)
    assert "data" not in done.results["protocol"]
    base, new = (
        setup_cfg(
            parse_arguments(command(data_root, tmp_path / "run", tiny_config, *FEW, "DATASET.SUBSAMPLE_CLASSES", half))
        )
        for half in ("base", "new")
    )
    assert run_difference(data, base, read_dataset(base)) == ""
    assert "evaluation: images of other names" in run_difference(data, new, read_dataset(new))
    evaluate = ["--eval-only", "--model-dir", str(done.folder), "DATASET.SUBSAMPLE_CLASSES", "new", *FEW]
    evaluation = Results.read(run(*evaluate, name="new").folder / "results.json").data
    assert evaluation is not None
    assert evaluation.training == data.training  # those of the checkpoint
    assert run_difference(evaluation, new, read_dataset(new), trains=False) == ""
    replace_images(data_root, "*_0.png")
    replace_images(data_root, "*_1.png")
    assert "training: images of other contents" in run_difference(data, base, read_dataset(base))
    assert run_difference(evaluation, new, read_dataset(new), trains=False) == ""


@pytest.mark.parametrize("kind", ["training", "evaluation", "sessions"])
def test_a_folder_with_results_on_other_images_is_refused(
    kind: str, run: Runner, data_root: Path, tmp_path: Path
) -> None:
    arguments, trainer = (SESSIONS, "CoOpFSCIL") if kind == "sessions" else (FEW, "CoOp")
    done = run(*arguments, trainer=trainer, name="training")
    if kind == "evaluation":
        arguments = ["--eval-only", "--model-dir", str(done.folder), *FEW]
        done = run(*arguments, name="evaluation")
    before = (done.folder / "results.json").read_bytes()

    def again(root: Path) -> Run:
        return run(*arguments, trainer=trainer, name=done.folder.name, data=root)

    copy = Path(shutil.copytree(data_root, tmp_path / "copy", copy_function=shutil.copyfile))
    assert again(copy).status == 0
    refused = again(replace_images(copy, "*_1?.png"))
    assert refused.status == 2
    assert f"{done.folder} holds a run on other data" in refused.output
    assert "contents" in refused.output
    assert again(data_root).status == 0
    assert Results.read(done.folder / "results.json").data is not None
    if kind != "evaluation":  # whose duration differs
        assert (done.folder / "results.json").read_bytes().splitlines()[:5] == before.splitlines()[:5]


@pytest.mark.parametrize("trainer", ["CoOp", "CoOpFSCIL"])
def test_a_stopped_run_is_not_resumed_on_other_images(
    trainer: str, run: Runner, data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = SESSIONS if trainer == "CoOpFSCIL" else FEW
    done = run(*arguments, trainer=trainer)
    (done.folder / "results.json").unlink()
    replace_images(data_root, "*_0.png")
    replace_images(data_root, "*_1.png")
    refused = run(*arguments, trainer=trainer)
    assert refused.status == 2
    assert "training: images of other contents" in refused.output


def test_results_without_a_record_are_not_refused(run: Runner, data_root: Path) -> None:
    done = run(*FEW)
    results = Results.read(done.folder / "results.json")
    replace(results, data=None).write(done.folder)
    (done.folder / "resume.pth").unlink()
    shutil.rmtree(done.folder / "prompt_learner")
    replace_images(data_root, "River_1?.png")
    again = run(*FEW, "DATASET.BAD_IMAGES", "skip")
    assert again.status == 0, again.output[-500:]


def test_other_settings_are_another_matter(run: Runner, data_root: Path) -> None:
    """Results of other classes in the same folder are kept beside the new ones, as always."""
    done = run(*FEW, "DATASET.SUBSAMPLE_CLASSES", "base")
    evaluate = ["--eval-only", "--model-dir", str(done.folder), "DATASET.SUBSAMPLE_CLASSES", "new", *FEW]
    assert run(*evaluate).status == 0
    assert len(list(done.folder.glob("results.json*"))) == 2


def test_a_record_in_a_file_is_checked() -> None:
    assert data_record.parse(None, "resume.pth") is None
    part = DataRecord(1, "a", "b", "c", "d").__dict__
    parsed = data_record.parse({"evaluated": part}, "resume.pth")
    assert parsed is not None
    assert parsed.evaluated == DataRecord(1, "a", "b", "c", "d")
    for altered in ({}, {"evaluated": {**part, "images": "x"}}, [part]):
        with pytest.raises(UserError, match=r"resume\.pth .* data"):
            data_record.parse(altered, "resume.pth")
