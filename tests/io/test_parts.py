"""Partial files of a killed writer are deleted by the next one; those of a running writer are kept."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest

from cocoamix.features.command import main
from cocoamix.features.store import FeatureStore
from cocoamix.io import files, parts
from cocoamix.io.files import check_writable, write_atomically, write_text

OLD = time.time() - 2 * 60 * 60


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget which folders this process has cleaned up."""
    monkeypatch.setattr(parts, "_swept", set())


def leave(folder: Path, name: str, age: float = 0.0) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"half")
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def ended_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_files_of_a_killed_writer_are_deleted(tmp_path: Path) -> None:
    code = (
        "import os, sys; from cocoamix.io.files import write_atomically\n"
        "write_atomically(sys.argv[1], lambda f: (f.write(b'half'), f.flush(), os.kill(os.getpid(), 9)))"
    )
    target = tmp_path / "resume.pth"
    assert subprocess.run([sys.executable, "-c", code, str(target)]).returncode == -9
    assert len(list(tmp_path.glob(".resume.pth.*.part"))) == 1
    write_text(tmp_path / "other.json", "{}")  # any file of that folder
    assert [path.name for path in tmp_path.iterdir()] == ["other.json"]


def test_files_of_running_writers_are_kept(tmp_path: Path) -> None:
    def write(file: IO[bytes]) -> None:
        (mine,) = tmp_path.glob("*.part")
        os.utime(mine, (OLD, OLD))
        parts.sweep(tmp_path)
        file.write(b"whole")

    write_atomically(tmp_path / "file", write)
    assert (tmp_path / "file").read_text() == "whole"


def test_which_partial_files_are_stale(tmp_path: Path) -> None:
    here, gone = parts.this_machine(), ended_process()
    dead = [
        leave(tmp_path, f".a.{here}-{gone}-01234567.part"),
        leave(tmp_path, f".a.fedcba98-{os.getpid()}-01234567.part", age=2 * 60 * 60),  # another machine's
        leave(tmp_path, ".a.01234567.part", age=2 * 60 * 60),  # an older version's
    ]
    kept = [
        leave(tmp_path, f".a.{here}-{os.getpid()}-01234567.part", age=2 * 60 * 60),
        leave(tmp_path, f".a.fedcba98-{gone}-01234567.part", age=60),
        leave(tmp_path, ".b.01234567.part", age=60),
        leave(tmp_path, "archive.zip.part", age=2 * 60 * 60),  # a download that resumes
        leave(tmp_path, ".mine.part", age=2 * 60 * 60),
        leave(tmp_path, f"below/.a.{here}-{gone}-01234567.part"),
    ]
    parts.sweep(tmp_path)
    assert not any(path.exists() for path in dead)
    assert all(path.exists() for path in kept)


def test_runs_and_stores_clean_up_at_start(tmp_path: Path) -> None:
    name = f".x.{parts.this_machine()}-{ended_process()}-01234567.part"
    run, store = tmp_path / "run", FeatureStore(tmp_path, {"model": "m"})
    left = [leave(run, name), leave(store.folder / "Pets/test", name)]
    check_writable(str(run))
    store.read("Pets/test", [])
    assert not any(path.exists() for path in left)


def test_a_folder_is_cleaned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path / "a", "")
    monkeypatch.setattr(parts, "_is_dead", lambda path: pytest.fail("looked again"))
    leave(tmp_path, ".a.01234567.part")
    files.write_text(tmp_path / "b", "")


def test_clear_deletes_all_partial_files(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path, {"model": "m"})
    files.write_json(store.folder / "about.json", {"model": "m"})
    leave(store.folder, ".about.json.fedcba98-1-01234567.part")
    leave(store.folder / "Pets", f".{32 * 'a'}.safetensors.fedcba98-1-01234567.part")
    leave(store.folder / "Pets", f".{32 * 'a'}.safetensors.01234567.part")
    assert main(["clear", str(tmp_path), "--yes"]) == 0
    assert not store.folder.exists()
