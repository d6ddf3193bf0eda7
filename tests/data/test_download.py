"""`download`: asks first, fetches what is missing, verifies it, and puts it where the loaders look."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cocoamix.data import fetching
from cocoamix.data.command import main
from cocoamix.data.sources import SOURCES
from cocoamix.errors import UserError
from tests.conftest import ROOT, write_dataset
from tests.data.server import Server, serve
from tests.data.test_fetching import fake_gdown
from tests.data.test_unpack import make_zip


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """EuroSAT's archive as its source packs it, and its split on a fake Google Drive."""
    made = write_dataset(tmp_path / "made", train=2, val=1, test=1) / "eurosat"
    files = {f"EuroSAT_RGB/{p.parent.name}/{p.name}": p.read_bytes() for p in made.glob("2750/*/*.png")}
    archive = make_zip(tmp_path / "archive.zip", files).read_bytes()
    split = (made / "split_zhou_EuroSAT.json").read_bytes()

    def drive(id: str, output: str, resume: bool) -> str:
        assert id == "1Ip7yaCWFi0eaOFUGga0lUdVi_DDQth1o"
        Path(output).write_bytes(split)
        return output

    fake_gdown(monkeypatch, drive)
    monkeypatch.setattr(fetching, "WAIT", 0.0)
    with serve({"/EuroSAT_RGB.zip": archive}) as running:
        real = SOURCES["EuroSAT"]
        images = replace(
            real.files[0],
            url=f"{running.address}/EuroSAT_RGB.zip",
            md5=hashlib.md5(archive).hexdigest(),
            size=0,
        )
        monkeypatch.setitem(SOURCES, "EuroSAT", replace(real, files=(images, replace(real.files[1], md5=""))))
        yield running


def get_requests(server: Server) -> list[str]:
    return [method for method, _, _ in server.asked if method == "GET"]


def test_downloaded_dataset_can_train(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "data"
    server.cuts = [1000]
    assert main(["download", "eurosat", "--root", str(root), "--yes"]) == 0
    printed = capsys.readouterr().out
    assert "licence: MIT" in printed
    assert sorted(p.name for p in (root / "eurosat").iterdir()) == [
        "2750",
        "EuroSAT_RGB.zip",
        "split_zhou_EuroSAT.json",
    ]
    assert main(["check", "EuroSAT", "--root", str(root)]) == 0
    asked = len(server.asked)
    assert main(["download", "eurosat", "--root", str(root), "--yes"]) == 0  # nothing is missing
    assert len(server.asked) == asked


def test_prompt_says_which_files_are_verified(server: Server, tmp_path: Path, capsys: Any) -> None:
    """A file without a checksum could be anything, so the prompt says so before the user confirms."""
    assert main(["download", "eurosat", "--root", str(tmp_path / "data")]) == 2
    lines = capsys.readouterr().out.splitlines()
    after = {line.split()[0]: lines[number + 1].strip() for number, line in enumerate(lines) if " from " in line}
    assert after["EuroSAT_RGB.zip"] == "verified by its MD5"
    assert after["split_zhou_EuroSAT.json"].startswith("NOT verified: no checksum is published")


def test_a_file_with_another_sha256_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(b"content")
    fetching.verify(path, hashlib.sha256(b"content").hexdigest(), "a.tar")
    with pytest.raises(UserError, match=r"a\.tar has the SHA-256 .*is published"):
        fetching.verify(path, "0" * 64, "a.tar")
    assert [one.name for one in tmp_path.iterdir()] == ["a.tar.wrong"]


def test_asks_for_confirmation(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    command = ["download", "eurosat", "--root", str(tmp_path / "data")]
    assert main(command) == 2  # pytest's stdin is no terminal
    assert "--yes" in capsys.readouterr().err

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for answer in ("n\n", "\n"):
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        assert main(command) == 2
        assert "Nothing was downloaded" in capsys.readouterr().err
    assert get_requests(server) == []
    assert not (tmp_path / "data").exists()
    monkeypatch.setattr(sys, "stdin", Terminal("yes\n"))
    assert main(command) == 0


def test_file_with_wrong_checksum_is_not_installed(server: Server, tmp_path: Path, capsys: Any) -> None:
    server.files["/EuroSAT_RGB.zip"] += b"!"
    assert main(["download", "eurosat", "--root", str(tmp_path / "data"), "--yes"]) == 1
    captured = capsys.readouterr()
    assert "is published" in captured.err
    assert "still missing: 2750" in captured.out
    # The other file was still downloaded, and nothing of the archive was installed.
    assert sorted(p.name for p in (tmp_path / "data" / "eurosat").iterdir()) == [
        "EuroSAT_RGB.zip.wrong",
        "split_zhou_EuroSAT.json",
    ]


def test_an_archive_from_another_source_is_verified_and_used(server: Server, tmp_path: Path, capsys: Any) -> None:
    """For use when the official address no longer works."""
    folder = tmp_path / "data" / "eurosat"
    folder.mkdir(parents=True)
    content = server.files.pop("/EuroSAT_RGB.zip")
    (folder / "EuroSAT_RGB.zip").write_bytes(content + b"!")
    assert main(["download", "eurosat", "--root", str(tmp_path / "data"), "--yes"]) == 1
    assert not (folder / "2750").exists()
    (folder / "EuroSAT_RGB.zip").write_bytes(content)
    assert main(["download", "eurosat", "--root", str(tmp_path / "data"), "--yes"]) == 0
    assert get_requests(server) == []
    assert (folder / "2750").is_dir()


def test_imagenet_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def drive(id: str, output: str, resume: bool) -> str:
        Path(output).write_text("n01440764 tench\n")
        return output

    fake_gdown(monkeypatch, drive)
    assert main(["download", "ImageNet", "--root", str(tmp_path), "--yes"]) == 1
    printed = capsys.readouterr().out
    assert "account at image-net.org" in printed
    assert "still missing: images/train, images/val" in printed
    assert (tmp_path / "imagenet" / "classnames.txt").is_file()


def test_unwritable_folders_are_reported(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    (tmp_path / "file").touch()
    assert main(["download", "EuroSAT", "--root", str(tmp_path / "file"), "--yes"]) == 2
    assert "is not a folder" in capsys.readouterr().err

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fetching, "_copy", full)
    assert main(["download", "EuroSAT", "--root", str(tmp_path / "data"), "--yes"]) == 2
    assert "No space left on device. The received part is kept" in capsys.readouterr().err


def test_nothing_to_download(tmp_path: Path, capsys: Any) -> None:
    assert main(["download", "Shapes", "--root", str(tmp_path)]) == 0
    assert main(["download", "folder", "--root", str(tmp_path)]) == 2
    assert "your own images" in capsys.readouterr().err


def test_importing_does_not_use_the_network(tmp_path: Path) -> None:
    code = (
        "import socket\n"
        "def refuse(*args, **kwargs): raise SystemExit('a connection was tried')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "import cocoamix.data, cocoamix.data.command, cocoamix.datasets\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
