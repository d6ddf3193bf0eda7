"""Archives: valid content is put in place; anything that would escape is refused, with nothing left behind."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from cocoamix.data import unpack as unpacking
from cocoamix.data.unpack import unpack
from cocoamix.errors import UserError

GOOD = {"top/images/a.jpg": b"image", "top/list.txt": b"list"}


def make_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def make_tar(path: Path, files: dict[str, bytes], *others: tarfile.TarInfo, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for info in others:
            archive.addfile(info)
    return path


def tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar"])
@pytest.mark.parametrize("take", ["", "top", "top/images"])
def test_valid_archives_are_unpacked(tmp_path: Path, kind: str, take: str) -> None:
    archive = tmp_path / f"x.{kind}"
    make_zip(archive, GOOD) if kind == "zip" else make_tar(archive, GOOD, mode="w:gz" if kind == "tar.gz" else "w")
    unpack(archive, tmp_path / "data" / "here", take)
    prefix = f"{take}/" if take else ""
    wanted = {name.removeprefix(prefix): content for name, content in GOOD.items() if name.startswith(prefix)}
    assert tree(tmp_path / "data" / "here") == wanted
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["here"]
    assert archive.is_file()


def test_nested_archive_is_unpacked(tmp_path: Path) -> None:
    inner = make_tar(tmp_path / "inner.tar.gz", {"101/a.jpg": b"image"})
    make_zip(tmp_path / "x.zip", {"top/inner.tar.gz": inner.read_bytes(), "__MACOSX/x": b""})
    unpack(tmp_path / "x.zip", tmp_path / "data", "top", "inner.tar.gz")
    assert tree(tmp_path / "data") == {"101/a.jpg": b"image"}


def test_existing_files_are_kept(tmp_path: Path) -> None:
    (tmp_path / "data" / "images").mkdir(parents=True)
    (tmp_path / "data" / "images" / "mine.jpg").write_bytes(b"mine")
    (tmp_path / "data" / "notes.txt").write_bytes(b"mine")
    with pytest.raises(UserError, match="images exists already"):
        unpack(make_zip(tmp_path / "x.zip", GOOD), tmp_path / "data", "top")
    assert tree(tmp_path / "data") == {"images/mine.jpg": b"mine", "notes.txt": b"mine"}
    unpack(make_zip(tmp_path / "y.zip", {"other/a": b"a"}), tmp_path / "data")
    assert tree(tmp_path / "data")["other/a"] == b"a"


@pytest.mark.parametrize("kind", ["zip", "tar"])
@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/evil", "..\\evil", "C:/evil", "a/.."])
def test_paths_outside_the_target_are_refused(tmp_path: Path, kind: str, name: str) -> None:
    files = {**GOOD, name: b"evil"}
    archive = tmp_path / f"x.{kind}"
    make_zip(archive, files) if kind == "zip" else make_tar(archive, files)
    with pytest.raises(UserError, match="outside the target"):
        unpack(archive, tmp_path / "data" / "here")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["data", archive.name]
    assert tree(tmp_path / "data") == {}
    assert list((tmp_path / "data").iterdir()) == []
    assert not Path("/evil").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_refused(tmp_path: Path, kind: bytes) -> None:
    info = tarfile.TarInfo("top/link")
    info.type, info.linkname = kind, "../../outside"
    with pytest.raises(UserError, match="'top/link' is a link or a device"):
        unpack(make_tar(tmp_path / "x.tar.gz", GOOD, info), tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_writing_through_a_link_is_refused(tmp_path: Path) -> None:
    """The classic attack: a link to outside, then a file below it."""
    (tmp_path / "outside").mkdir()
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "outside")
    inside = tarfile.TarInfo("link/evil")
    with pytest.raises(UserError, match="is a link"):
        unpack(make_tar(tmp_path / "x.tar", {}, link, inside, mode="w"), tmp_path / "data")
    assert list((tmp_path / "outside").iterdir()) == []


def test_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(info, "/etc")
    with pytest.raises(UserError, match="'link' is a link"):
        unpack(tmp_path / "x.zip", tmp_path / "data")


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_truncated_or_damaged_archives_are_refused(tmp_path: Path, kind: str) -> None:
    import os

    big = {"top/a": os.urandom(200_000)}
    archive = tmp_path / f"x.{kind}"
    make_zip(archive, big) if kind == "zip" else make_tar(archive, big)
    content = bytearray(archive.read_bytes())
    (tmp_path / "cut").write_bytes(content[:100_000])
    content[60_000:60_100] = bytes(100)
    (tmp_path / "damaged").write_bytes(content)
    for name in ("cut", "damaged"):
        with pytest.raises(UserError, match=f"{name} (is|cannot)"):
            unpack(tmp_path / name, tmp_path / "data")
        assert not (tmp_path / "data").exists()


def test_html_page_is_not_an_archive(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_text("<!DOCTYPE html><title>Sign in")
    with pytest.raises(UserError, match=r"DOCTYPE html.*login"):
        unpack(tmp_path / "x.zip", tmp_path / "data")


def test_a_member_without_a_name_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo(""), b"x")
    with pytest.raises(UserError, match="has no name"):
        unpack(tmp_path / "x.zip", tmp_path / "target")


def test_named_pipe_is_not_an_archive(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.zip")
    with pytest.raises(UserError, match="is not a file"):
        unpack(tmp_path / "x.zip", tmp_path / "target")


def test_archive_without_the_expected_content_is_refused(tmp_path: Path) -> None:
    make_zip(tmp_path / "x.zip", GOOD)
    with pytest.raises(UserError, match="has no folder sketch/, but top"):
        unpack(tmp_path / "x.zip", tmp_path / "data", "sketch")
    with pytest.raises(UserError, match=r"has no 1\.tar"):
        unpack(tmp_path / "x.zip", tmp_path / "data", "top", "1.tar")


def test_a_damaged_xz_is_refused(tmp_path: Path) -> None:
    archive = make_tar(tmp_path / "x.tar.xz", {"a": bytes(range(256)) * 999}, mode="w:xz")
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 255
    archive.write_bytes(content)
    with pytest.raises(UserError, match="Delete it and download it again"):
        unpack(archive, tmp_path / "data")


def test_unknown_zip_compression_method_is_refused(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "x.zip", {"a": b"image"})
    content = bytearray(archive.read_bytes())
    for start, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        content[content.index(start) + offset] = 97
    archive.write_bytes(content)
    with pytest.raises(UserError, match="Unpack it yourself"):
        unpack(archive, tmp_path / "data")


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
@pytest.mark.parametrize("many", [False, True])
def test_archive_bombs_are_refused_by_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, many: bool
) -> None:
    """One large member, or many with a large total; nothing is left behind."""
    monkeypatch.setattr(unpacking, "MORE_BYTES", 1_000)
    files = {f"top/{number}": bytes(5_000_000 // (10 if many else 1)) for number in range(10 if many else 1)}
    archive = tmp_path / f"x.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as content:
            for name, raw in files.items():
                content.writestr(name, raw)
    else:
        make_tar(archive, files)
    with pytest.raises(UserError, match=r"would unpack to more than .* Nothing was kept"):
        unpack(archive, tmp_path / "data" / "here")
    assert list((tmp_path / "data").iterdir()) == []
    monkeypatch.setattr(unpacking, "MORE_BYTES", 5_000_000)
    unpack(archive, tmp_path / "data" / "here")
    assert tree(tmp_path / "data" / "here") == files


def test_trailing_and_nested_archive_bombs_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "MORE_BYTES", 1_000)
    tail = tmp_path / "tail.tar.gz"
    plain = make_tar(tmp_path / "plain.tar", {"a": b"a"}, mode="w").read_bytes()
    tail.write_bytes(gzip.compress(plain + bytes(5_000_000)))
    with pytest.raises(UserError, match="would unpack to more than"):
        unpack(tail, tmp_path / "data")
    bomb = make_tar(tmp_path / "bomb.tar.gz", {"b": bytes(5_000_000)})
    outer = make_zip(tmp_path / "outer.zip", {"top/bomb.tar.gz": bomb.read_bytes()})
    with pytest.raises(UserError, match="would unpack to more than"):
        unpack(outer, tmp_path / "data", "top", "bomb.tar.gz")
    assert not (tmp_path / "data").exists()


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "MOST_MEMBERS", 3)
    archive = make_zip(tmp_path / "x.zip", {str(number): b"" for number in range(4)})
    with pytest.raises(UserError, match="or 3 files"):
        unpack(archive, tmp_path / "data")
