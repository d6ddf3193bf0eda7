"""Time the report on a tree of 2,000 runs: half with results.json, half with logs of 50 epochs.

    python benchmarks/report.py

Prints the seconds of reading, of printing the tables, and of writing the page with its figures, each the best of three.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cocoamix.experiments.frame import read
from cocoamix.experiments.report import main as report
from tests.experiments.trees import UPSTREAM, head, result, write_log, write_pair

NAMES = "EuroSAT DTD Food101 UCF101 OxfordPets StanfordCars SUN397 Caltech101 ImageNet Own"
DATASETS = NAMES.split()
BATCHES = 20  # lines per epoch in a log


def write_tree(root: Path, runs: int) -> int:
    """Write `runs` run folders in CoOp's layout; return the bytes of their logs."""
    epochs = "".join(UPSTREAM.format(e=epoch, E=50) * BATCHES for epoch in range(1, 51)) + "Finish training\n"
    size = 0
    seeds = runs // 4 // len(DATASETS)
    for dataset in DATASETS:
        for seed in range(1, seeds + 1):
            write_pair(root, 70 + seed / 10, 60.0, dataset=dataset, seed=seed)
            tail = f"{dataset.lower()}/shots_16/CoCoOp/vit_b16/seed{seed}"
            for kind, subset in (("train_base", "base"), ("test_new", "new")):
                text = head("CoCoOp", dataset, subset, seed)
                path = write_log(root / "base2new" / kind / tail, text, epochs, result(600 + seed))
                size += path.stat().st_size
    return size


def best(work: Callable[[], object]) -> float:
    """Return the seconds of the fastest of three calls."""
    with contextlib.redirect_stdout(io.StringIO()):
        return min(timeit.repeat(work, number=1, repeat=3))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "output"
        size = write_tree(root, args.runs)
        found = len(read([root]).runs)
        print(f"{found} run folders, {size / 2**20:.0f} MiB of logs")
        print(f"read:          {best(lambda: read([root])):.2f} s")
        print(f"tables:        {best(lambda: report([str(root)])):.2f} s")
        page = str(Path(folder) / "page.html")
        print(f"page, figures: {best(lambda: report([str(root), '--quiet', '--html', page])):.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
