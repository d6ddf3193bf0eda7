"""A disk that fills up at any moment causes an error message and nothing worse."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Tally
from .runs import Child, Place, finish, outcome


def mount(folder: Path, kilobytes: int, again: bool = False) -> bool:
    """Mount a file system of a given size on a folder, or resize it; return whether that is allowed."""
    options = f"{'remount,' if again else ''}size={kilobytes}k"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return shutil.which("mount") is not None and subprocess.run(command, capture_output=True).returncode == 0


@pytest.fixture
def disk(place: Place) -> Iterator[Path]:
    """A separate file system, which can be filled up."""
    folder = place.fresh("disk")
    if not mount(folder, 4096):
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def empty(disk: Path) -> None:
    """Delete everything on the disk."""
    for path in disk.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["CoOp", "CoCoAMix, folds", "CoCoAMix, sessions"])
def test_runs_on_a_full_disk_are_refused_and_resume(
    kind: str, place: Place, disk: Path, rng: random.Random, tally: Tally
) -> None:
    log = place.folder / "disk.txt"
    arguments = place.arguments(kind, disk / "run", "CACHE.DIR", str(disk / "store"))
    start = time.monotonic()
    finish(arguments, log)
    seconds = time.monotonic() - start
    wanted = outcome(disk / "run")
    needed = sum(-(-path.stat().st_size // 4096) * 4 for path in disk.rglob("*") if path.is_file())
    refused = 0
    for number in range(8):
        empty(disk)
        if number % 2:  # full from the start except for part of what the run needs
            assert mount(disk, rng.randrange(4, needed, 4), again=True)
            child = Child(arguments, log)
        else:  # filled by another process at some moment
            child = Child(arguments, log)
            time.sleep(rng.uniform(0, seconds))
            fill(disk)
        status = child.wait()
        assert status in (0, 2), child.output()[-2500:]
        assert "Traceback" not in child.output(), child.output()[-2500:]
        if status:
            assert "No space left on device" in child.output(), child.output()[-2500:]
            refused += 1
        (disk / "filler").unlink(missing_ok=True)
        assert mount(disk, 4096, again=True)
        finish(arguments, log)
        assert outcome(disk / "run") == wanted
        assert not list(disk.rglob("*.part"))
    assert refused
    tally.count("full disk", refused)


def fill(disk: Path) -> None:
    """Use up all remaining space."""
    with (disk / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"0" * 4096)
        except OSError:
            pass
