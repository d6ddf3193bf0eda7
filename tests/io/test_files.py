"""A file is written completely or not changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from cocoamix.io.files import write_atomically, write_json, write_text


def test_failed_write_leaves_only_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old")

    def fail(file: IO[bytes]) -> None:
        file.write(b"half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_killed_writer_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old")
    code = (
        "import os, sys; from cocoamix.io.files import write_atomically\n"
        "write_atomically(sys.argv[1], lambda f: (f.write(b'half'), f.flush(), os.kill(os.getpid(), 9)))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)]).returncode == -9
    assert path.read_text() == "old"


def test_creates_folders_with_default_permissions(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    path = tmp_path / "a" / "b" / "file.json"
    write_json(path, {"name": "Þór", "values": [1, 2]})
    assert json.loads(path.read_text()) == {"name": "Þór", "values": [1, 2]}
    assert os.stat(path).st_mode == os.stat(plain).st_mode
