"""Time and memory to load ImageNet as a few-shot dataset: first start, next start, next draw.

    python benchmarks/imagenet_listing.py [--real FOLDER]

There are 1000 classes with 1,281,167 training and 50,000 validation images. The files are simulated: only
`preprocessed.pkl` and the draws are written. With --real, 1.3 million empty files are created below FOLDER, which takes
minutes, and are listed from disk. Every start is a separate process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
CLASSES, TRAIN, VAL = 1000, 1_281_167, 50_000


def list_simulated(path: str) -> list[str]:
    """Return the names of the entries in a folder of the simulated ImageNet."""
    parent, name = os.path.split(path)
    synsets = [f"n{number:08d}" for number in range(CLASSES)]
    if name in ("train", "val"):
        return synsets
    label, split = int(name[1:]), os.path.basename(parent)
    total = TRAIN if split == "train" else VAL
    count = total // CLASSES + (label < total % CLASSES)
    return [f"{name}_{number}.JPEG" for number in range(count)]


class Entry:
    """An entry of `os.scandir` for a simulated file."""

    def __init__(self, folder: str, name: str) -> None:
        self.name, self.path = name, os.path.join(folder, name)

    def is_file(self, follow_symlinks: bool = True) -> bool:
        return self.name.endswith(".JPEG")

    def is_dir(self, follow_symlinks: bool = True) -> bool:
        return not self.is_file()

    def is_symlink(self) -> bool:
        return False


def simulate_files(root: str) -> None:
    """Patch the functions that list folders and look for files, so that they see the simulated files."""
    scandir, isfile = os.scandir, os.path.isfile

    @contextlib.contextmanager
    def listed(path: Any) -> Iterator[Any]:
        if os.path.basename(os.fspath(path)) in ("train", "val") or "/n0" in os.fspath(path):
            yield iter([Entry(os.fspath(path), name) for name in list_simulated(os.fspath(path))])
        else:
            with scandir(path) as entries:
                yield entries

    os.scandir = listed  # type: ignore[assignment]
    os.path.isfile = lambda path: os.fspath(path).endswith(".JPEG") or isfile(path)  # type: ignore[assignment]


def start(args: argparse.Namespace) -> dict[str, float]:
    """Build the dataset once, in this process."""
    sys.path.insert(0, str(HERE))
    import cocoamix  # noqa: F401
    from cocoamix.trainers import extend_cfg

    # isort: split
    from dassl.config import get_cfg_default

    from cocoamix.datasets.imagenet import ImageNet

    cfg = get_cfg_default()
    extend_cfg(cfg)
    cfg.DATASET.ROOT, cfg.DATASET.NUM_SHOTS, cfg.SEED = args.root, args.shots, args.seed
    if not args.real:
        simulate_files(args.root)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    begun, used = time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(None):
        dataset = ImageNet(cfg)
    seconds, cpu = time.perf_counter() - begun, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sizes = {"train": len(dataset.train_x), "test": len(dataset.test)}
    return {"seconds": seconds, "cpu": cpu, "imports": before, "peak": peak, **sizes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--real", default="", help="make the files below this folder")
    parser.add_argument("--root", default="", help=argparse.SUPPRESS)
    parser.add_argument("--shots", type=int, default=16, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.root:
        print(json.dumps(start(args)))
        return
    with tempfile.TemporaryDirectory() as folder:
        measure(args.real or folder, args.real)


def measure(root: str, real: str) -> None:
    base = Path(root, "imagenet")
    for split in ("train", "val"):
        Path(base, "images", split).mkdir(parents=True, exist_ok=True)
        for synset in list_simulated(str(base / "images" / split)) if real else ():
            target = base / "images" / split / synset
            target.mkdir(exist_ok=True)
            for name in list_simulated(str(target)):
                os.close(os.open(target / name, os.O_CREAT | os.O_WRONLY))
    lines = [f"n{number:08d} class {number}\n" for number in range(CLASSES)]
    (base / "classnames.txt").write_text("".join(lines))
    (base / "preprocessed.pkl").unlink(missing_ok=True)
    print(f"{'start':21}{'seconds':>8}{'CPU':>6}{'peak MB':>9}{'of it imports':>15}{'train':>11}{'test':>8}")
    starts = (("first, 16 shots", 16, 1), ("next, the same draw", 16, 1), ("next, another seed", 16, 2))
    for name, shots, seed in (*starts, ("next, all images", -1, 1)):
        command = [sys.executable, __file__, "--root", root, "--shots", str(shots), "--seed", str(seed)]
        command += ["--real", real] if real else []
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        r = json.loads(done.stdout)
        print(
            f"{name:21}{r['seconds']:8.1f}{r['cpu']:6.1f}{r['peak']:9.0f}{r['imports']:15.0f}{r['train']:11,}{r['test']:8,}"
        )
    size = (base / "preprocessed.pkl").stat().st_size / 1e6
    print(f"preprocessed.pkl has {size:.0f} MB")


if __name__ == "__main__":
    main()
