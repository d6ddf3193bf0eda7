"""The store on disk: problems with files cost time but never change a number."""

from __future__ import annotations

import errno
import io
import json
import multiprocessing
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from cocoamix.features import store as features
from cocoamix.features.command import main
from cocoamix.features.store import FeatureStore, make_key

ABOUT = {"model": "ViT-B/16", "weights": "abc"}
KEYS = [make_key("image", number) for number in range(5)]
ROWS = torch.arange(20.0).view(5, 4)


def stored(folder: Path) -> FeatureStore:
    store = FeatureStore(folder, ABOUT)
    store.write("Pets/test", KEYS, ROWS)
    return store


def only_file(folder: Path) -> Path:
    (path,) = folder.rglob("*.safetensors")
    return path


def test_rows_round_trip(tmp_path: Path) -> None:
    stored(tmp_path)
    store = FeatureStore(tmp_path, ABOUT)
    found = store.read("Pets/test", [*KEYS[1:3], make_key("other")])
    assert set(found) == set(KEYS[1:3])
    torch.testing.assert_close(found[KEYS[2]], ROWS[2], atol=0, rtol=0)
    assert store.read("Pets/view0", KEYS) == {}
    assert FeatureStore(tmp_path, {**ABOUT, "weights": "other"}).read("Pets/test", KEYS) == {}


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip(path: Path, name: str) -> None:
    """Flip one bit of a stored tensor."""
    content = bytearray(path.read_bytes())
    length = int.from_bytes(content[:8], "little")
    start, _ = json.loads(content[8 : 8 + length])[name]["data_offsets"]
    content[8 + length + start + 2] ^= 1
    path.write_bytes(content)


def alter_feature(path: Path) -> None:
    flip(path, "features")


def alter_key(path: Path) -> None:
    flip(path, "keys")


def reshape(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"[5,4]", b"[4,5]"))


def retype(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"F32"', b'"I32"'))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def half(path: Path) -> None:
    """Store features of a type that numpy does not have."""
    table = torch.zeros(5, 16, dtype=torch.uint8)
    path.write_bytes(save({"keys": table, "features": torch.zeros(5, 4, dtype=torch.bfloat16)}))


@pytest.mark.parametrize("damage", [cut, alter_feature, alter_key, reshape, retype, empty, half])
def test_a_damaged_file_is_reported_once_and_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: object
) -> None:
    store = stored(tmp_path)
    path = only_file(tmp_path)
    damage(path)  # type: ignore[operator]
    assert store.read("Pets/test", KEYS) == {}
    assert capsys.readouterr().out.count(str(path)) == 1
    assert not path.exists()
    assert store.read("Pets/test", KEYS) == {}
    assert capsys.readouterr().out == ""
    stored(tmp_path)
    assert len(store.read("Pets/test", KEYS)) == 5


def test_a_full_disk_is_reported_once_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, write: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = FeatureStore(tmp_path, ABOUT)
    monkeypatch.setattr(features, "write_atomically", full)
    for _ in range(3):
        store.write("Pets/test", KEYS, ROWS)
    assert capsys.readouterr().out.count("No space left on device") == 1
    assert list(tmp_path.rglob("*.safetensors")) == []


def test_a_temporarily_unreadable_file_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = stored(tmp_path)

    def busy(path: Path) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(features, "_read_file", busy)
        assert store.read("Pets/test", KEYS) == {}
    assert "Too many open files" in capsys.readouterr().out
    assert len(store.read("Pets/test", KEYS)) == 5


def test_a_named_pipe_in_the_store_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Opening it would wait forever, and the reader in Rust does not react to Ctrl-C."""
    store = stored(tmp_path)
    os.mkfifo(only_file(tmp_path).with_name("0.safetensors"))
    assert len(store.read("Pets/test", KEYS)) == 5
    assert "it is not a file" in capsys.readouterr().out


def _write_many(folder: Path, start: int) -> None:
    store = FeatureStore(folder, ABOUT)
    for number in range(start, start + 20):
        store.write("Pets/test", [make_key(number)], torch.full((1, 4), float(number)))


def test_concurrent_writers_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_many, args=(tmp_path, 10 * start)) for start in range(4)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    found = FeatureStore(tmp_path, ABOUT).read("Pets/test", [make_key(number) for number in range(50)])
    assert [float(found[make_key(number)][0]) for number in range(50)] == list(range(50))


def test_info_and_clear_affect_only_the_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path)
    left = tmp_path / "notes.txt"
    left.write_text("mine")
    file = only_file(tmp_path)
    file.with_name(f".{file.name}.0123abcd.part").write_bytes(b"half")  # of a killed writer
    other = tmp_path / "project"
    other.mkdir()
    (other / "about.json").write_text('{"title": "not a store"}')
    (other / "model.safetensors").write_bytes(b"weights")
    assert main(["info", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "Pets: 5 features" in shown
    assert "model: ViT-B/16" in shown
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(["clear", str(tmp_path)]) == 2
    assert "--yes" in capsys.readouterr().err
    monkeypatch.setattr("builtins.input", lambda question: "n")
    assert main(["clear", str(tmp_path)]) == 0
    assert file.is_file()
    assert main(["clear", str(tmp_path), "--yes"]) == 0
    assert sorted(tmp_path.rglob("*")) == [left, other, other / "about.json", other / "model.safetensors"]
    assert main(["info", str(tmp_path / "nowhere")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_default_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COCOAMIX_CACHE", str(tmp_path))
    assert features.default_folder() == tmp_path / "features"
    monkeypatch.delenv("COCOAMIX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert features.default_folder() == tmp_path / "xdg" / "cocoamix" / "features"


def test_features_that_are_not_finite_are_encoded_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever wrote them: the checksum is right, but the numbers are useless."""
    store = FeatureStore(tmp_path, ABOUT)
    store.write("Pets/test", KEYS, torch.where(ROWS == 7, torch.nan, ROWS))
    path = only_file(tmp_path)
    assert store.read("Pets/test", KEYS) == {}
    assert f"{path} is damaged (it contains features that are not finite)" in capsys.readouterr().out
    assert not path.exists()
