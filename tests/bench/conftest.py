"""A fake train.py that does only what its configuration says, and plans for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

# Accepts CoOp's flags, records every start, and obeys the FAKE.* options. A file `hold` in its folder pauses it.
FAKE = """
import argparse, json, os, pathlib, sys, time
parser = argparse.ArgumentParser()
for flag in ("root", "seed", "trainer", "dataset-config-file", "config-file", "output-dir", "model-dir"):
    parser.add_argument("--" + flag)
parser.add_argument("--eval-only", action="store_true")
parser.add_argument("opts", nargs=argparse.REMAINDER)
args = parser.parse_args()
options = dict(zip(args.opts[::2], args.opts[1::2]))
folder = pathlib.Path(args.output_dir)
folder.mkdir(parents=True, exist_ok=True)
diary = pathlib.Path(__file__).with_name("diary.txt")
def note(text):
    with diary.open("a") as file:
        file.write(text + "\\n")
note("start " + str(folder))
if args.model_dir and not (pathlib.Path(args.model_dir) / "model").is_file():
    sys.exit("error: there is no model in " + args.model_dir)
note("gpu " + os.environ.get("CUDA_VISIBLE_DEVICES", "") + " threads " + os.environ.get("OMP_NUM_THREADS", ""))
done = int((folder / "epoch").read_text()) if (folder / "epoch").is_file() else 0
print("begun at epoch", done, flush=True)
for epoch in range(done, int(options.get("FAKE.EPOCHS", 0))):
    time.sleep(0.1)
    (folder / "epoch").write_text(str(epoch + 1))
    while epoch == 1 and (folder / "hold").exists():
        time.sleep(0.05)
if options.get("FAKE.FAIL") and args.seed in options["FAKE.FAIL"]:
    print("Traceback (most recent call last):\\n  File nowhere", file=sys.stderr)
    print("error: the images of seed " + args.seed + " are missing.", file=sys.stderr)
    sys.exit(2)
if options.get("FAKE.CRASH"):
    raise ValueError("this is a bug")
if options.get("FAKE.SILENT"):
    sys.exit(0)
if options.get("FAKE.RESULTS"):
    (folder / "results.json").write_text(options["FAKE.RESULTS"])
    sys.exit(0)
if not args.eval_only:
    (folder / "model").write_text("1")
(folder / "results.json").write_text(json.dumps({"metrics": {"accuracy": 50 + int(args.seed)}, "begun": done}))
note("end " + str(folder))
"""

CONFIG = "OPTIM: {MAX_EPOCH: 2}\n"
Writer = Callable[..., Path]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a fake train.py and two configurations, as the current folder."""
    (tmp_path / "fake.py").write_text(FAKE)
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATA", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


@pytest.fixture
def write_plan(place: Path) -> Writer:
    """Write a plan of two methods on the synthetic dataset; keywords change it, None removes a key."""

    def writer(name: str = "my.yaml", **changes: Any) -> Path:
        plan: dict[str, Any] = {
            "task": "base2new",
            "datasets": ["shapes"],
            "shots": 4,
            "seeds": [1, 2],
            "methods": [
                {"name": "CLIP", "trainer": "ZeroshotCLIP", "config": "one.yaml", "train": False},
                {"name": "CoOp", "trainer": "CoOp", "config": "two.yaml"},
            ],
        }
        plan.update(changes)
        path = place / name
        path.write_text(
            yaml.safe_dump({key: value for key, value in plan.items() if value is not None}, sort_keys=False)
        )
        return path

    return writer


@pytest.fixture
def diary(place: Path) -> Callable[[str], list[str]]:
    """Return the folders that the fake train.py recorded with a word, in order."""

    def read(word: str) -> list[str]:
        path = place / "diary.txt"
        lines = path.read_text().splitlines() if path.is_file() else []
        return [line.removeprefix(f"{word} ") for line in lines if line.startswith(f"{word} ")]

    return read


@contextmanager
def paused(folder: str) -> Iterator[Path]:
    """Pause the run of a folder in its second epoch while the body runs; yields the file with its epoch."""
    hold = Path(folder, "hold")
    hold.parent.mkdir(parents=True)
    hold.touch()
    yield Path(folder, "epoch")
    hold.unlink()


@pytest.fixture
def fake(place: Path) -> str:
    """The command of the fake train.py."""
    return f"{sys.executable} {place / 'fake.py'}"
