"""Compare one thread with torch's default number of threads, for a training step of models of several sizes.

    python benchmarks/threads.py [--busy N] [--models tiny ViT-B/16] [--classes 30]

Prints wall-clock seconds and their ratio: above 1, one thread is faster. --busy starts N processes that compute
continuously, as on a shared machine. The threshold in `cocoamix/run/threads.py` was chosen with this benchmark.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from benchmarks import measure
from cocoamix.clip import load_clip


def seconds(step: Callable[[], None], threads: int) -> float:
    """Return the wall-clock seconds of a step: the median of the steps in two seconds."""
    torch.set_num_threads(threads)
    step()
    found = []
    end = time.monotonic() + 2
    while len(found) < 3 or time.monotonic() < end:
        start = time.perf_counter()
        step()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def keep_busy() -> None:
    """Compute until the process is ended."""
    torch.set_num_threads(1)
    matrix = torch.randn(256, 256)
    while True:
        matrix = torch.tanh(matrix @ matrix)


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep a number of processes computing in this context."""
    started = [multiprocessing.get_context("spawn").Process(target=keep_busy, daemon=True) for _ in range(processes)]
    for one in started:
        one.start()
    try:
        yield
    finally:
        for one in started:
            one.terminate()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busy", type=int, default=0, help="number of busy background processes")
    parser.add_argument("--models", nargs="+", default=["tiny", "ViT-B/16"])
    parser.add_argument("--classes", type=int, default=30)
    args = parser.parse_args()
    default = torch.get_num_threads()
    print(
        f"torch {torch.__version__}, {default} threads by default, {args.busy} busy processes, {args.classes} classes\n"
    )
    print(f"| model | text width | one thread (s) | {default} threads (s) | ratio |\n|---|---|---|---|---|")
    with busy(args.busy):
        for name in args.models:
            clip = load_clip(name, "random", precision="fp32")
            step = measure.Case(clip, args.classes).forward_backward
            one, many = (statistics.median(times) for times in zip(*_turns(step, default), strict=True))
            print(f"| {name} | {clip.sizes.text_width} | {one:.4f} | {many:.4f} | {many / one:.2f} |", flush=True)


def _turns(step: Callable[[], None], default: int) -> list[tuple[float, float]]:
    """Return the seconds of a step with one thread and with the default, measured three times in turn."""
    return [(seconds(step, 1), seconds(step, default)) for _ in range(3)]


if __name__ == "__main__":
    main()
