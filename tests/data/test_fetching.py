"""Interrupted downloads resume; only a file with the right checksum gets its final name."""

from __future__ import annotations

import hashlib
import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from cocoamix.data import fetching
from cocoamix.data.fetching import fetch, fetch_drive, size_of
from cocoamix.errors import UserError
from tests.data.server import serve

CONTENT = os.urandom(3_000_000)
MD5 = hashlib.md5(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "WAIT", 0.0)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_complete_download_has_its_final_name(tmp_path: Path) -> None:
    with serve({"/a.zip": CONTENT}) as server:
        assert size_of(f"{server.address}/a.zip") == len(CONTENT)
        fetch(f"{server.address}/a.zip", tmp_path / "new" / "a.zip", MD5)
    assert (tmp_path / "new" / "a.zip").read_bytes() == CONTENT
    assert names(tmp_path / "new") == ["a.zip"]


def test_dropped_connection_resumes_in_the_same_run(tmp_path: Path) -> None:
    with serve({"/a": CONTENT}, cuts=[1_000_000, 0, 500_000]) as server:
        fetch(f"{server.address}/a", tmp_path / "a", MD5)
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert [wanted for _, _, wanted in server.asked] == [
        None,
        "bytes=1000000-",
        "bytes=1000000-",
        "bytes=1500000-",
    ]


def test_dropped_connection_resumes_in_the_next_run(tmp_path: Path) -> None:
    with serve({"/a": CONTENT}, cuts=[1_000_000] + [0] * fetching.TRIES) as server:
        with pytest.raises(UserError, match=r"1,000,000 bytes are kept.*resumes from there"):
            fetch(f"{server.address}/a", tmp_path / "a", MD5)
        assert not (tmp_path / "a").exists()
        server.asked.clear()
        fetch(f"{server.address}/a", tmp_path / "a", MD5)
        assert server.asked == [("GET", "/a", "bytes=1000000-")]
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("why", ["changed", "no ranges", "no tag"])
def test_a_partial_download_of_another_file_is_not_resumed(tmp_path: Path, why: str) -> None:
    with serve({"/a": b"x" * 900_000 + CONTENT}, cuts=[900_000] + [0] * fetching.TRIES) as server:
        if why == "no tag":
            server.tag = ""
        with pytest.raises(UserError):
            fetch(f"{server.address}/a", tmp_path / "a")
        server.cuts.clear()
        server.files["/a"] = CONTENT
        if why == "changed":
            server.tag = '"two"'
        server.ranges = why != "no ranges"
        fetch(f"{server.address}/a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == CONTENT


def test_complete_partial_file_is_finished(tmp_path: Path) -> None:
    """Killed between the last byte and the rename."""
    with serve({"/a": CONTENT}, cuts=[1_000] + [0] * fetching.TRIES) as server:
        with pytest.raises(UserError):
            fetch(f"{server.address}/a", tmp_path / "a", MD5)
        server.cuts.clear()
        (tmp_path / "a.part").write_bytes(CONTENT)
        fetch(f"{server.address}/a", tmp_path / "a", MD5)
        assert [path for method, path, _ in server.asked[-1:]] == ["/a"]
    assert (tmp_path / "a").read_bytes() == CONTENT


def test_file_with_wrong_checksum_is_refused_and_set_aside(tmp_path: Path) -> None:
    with serve({"/a": CONTENT[:-1] + b"!"}) as server, pytest.raises(UserError, match=f"{MD5} is published"):
        fetch(f"{server.address}/a", tmp_path / "a", MD5)
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "a.part").exists()
    assert (tmp_path / "a.wrong").is_file()


def test_missing_page_is_reported(tmp_path: Path) -> None:
    with serve({}) as server:
        with pytest.raises(UserError, match="returned 404"):
            fetch(f"{server.address}/a", tmp_path / "a")
        assert size_of(f"{server.address}/a") == 0
        address = server.address
    with pytest.raises(UserError, match="cannot be downloaded"):  # nothing is listening there any more
        fetch(f"{address}/a", tmp_path / "a")
    assert names(tmp_path) == []


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://example.org/a", "a.zip"])
def test_unsupported_urls_are_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(UserError, match="not an HTTP address"):
        fetch(url, tmp_path / "a")


def fake_gdown(monkeypatch: pytest.MonkeyPatch, download: Any) -> None:
    module = types.ModuleType("gdown")
    module.download = download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "gdown", module)


def test_google_drive_downloads_are_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(id: str, output: str, resume: bool) -> str:
        assert (id, resume) == ("abc", True)
        Path(output).write_bytes(CONTENT)
        return output

    fake_gdown(monkeypatch, download)
    fetch_drive("abc", tmp_path / "new" / "split.json", MD5)
    assert (tmp_path / "new" / "split.json").read_bytes() == CONTENT
    with pytest.raises(UserError, match=r"0{32} is published"):
        fetch_drive("abc", tmp_path / "other.json", "0" * 32)


def test_failed_google_drive_download_gives_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_gdown(monkeypatch, lambda **options: None)
    with pytest.raises(UserError, match=r"drive\.google\.com/file/d/abc in a browser"):
        fetch_drive("abc", tmp_path / "split.json")
    fake_gdown(monkeypatch, lambda **options: 1 / 0)
    with pytest.raises(UserError, match="division by zero"):
        fetch_drive("abc", tmp_path / "split.json")


def test_missing_gdown_error_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gdown", None)
    with pytest.raises(UserError, match=r"pip install gdown.*save it as .*split\.json"):
        fetch_drive("abc", tmp_path / "split.json")
