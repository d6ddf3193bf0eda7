"""Speed and memory relative to the plain CoOp path, measured in one run.

    python benchmarks/run.py [--classes 10 50 100]

At ViT-B/16 size with random weights, ImageNet's class names and fp32. Times are CPU seconds of all threads, the two
paths timed in turn; a ratio is the median of its repetitions, followed by the range. Memory is the peak of a separate
process, without weights and prompts. With more than 100 classes, the plain path runs in parts of as many, once.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from benchmarks import measure
from cocoamix.clip import FrozenCLIP

CLASSES = (10, 50, 100, 500, 1000)
PLAIN_MEMORY = 200  # classes; for more, the plain path needs too much memory
HEAD = ("classes", "text forward + backward", "iteration", "ours, iteration", "evaluation", "memory, plain", "ours")


def compare(clip: FrozenCLIP, classes: int, repetitions: int) -> list[str]:
    """Return a row of the table: how many times faster ours is, and the memory of both."""
    case = measure.Case(clip, classes)
    once = 1 if classes > measure.PLAIN_AT_ONCE else repetitions
    text = measure.compare(case.plain_forward_backward, case.forward_backward, once)
    iteration = measure.compare(case.plain_iteration, case.iteration, once)
    evaluation = measure.compare(case.plain_evaluation, case.evaluation, 1)
    plain = f"{measure.peak_memory(clip.name, 'plain', classes):,.0f} MB" if classes <= PLAIN_MEMORY else "not run"
    ours = f"{measure.peak_memory(clip.name, 'ours', classes):,.0f} MB"
    row = (classes, text, iteration, f"{iteration.second:.3f} s", f"{evaluation.ratio:.0f}x", plain, ours)
    return [str(cell) for cell in row]


def main() -> None:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--classes", type=int, nargs="+", default=None, help=f"numbers of classes; {CLASSES}")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="once, with a tiny model, only to test the script")
    args = parser.parse_args()
    name = measure.BACKBONES[args.quick]
    clip = measure.load_backbone(name)
    print(f"{name}, random weights, fp32, torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"Times faster than the plain path, batches of {measure.BATCH}; an evaluation has two of stored features\n")
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    for classes in args.classes or ((4,) if args.quick else CLASSES):
        print(f"| {' | '.join(compare(clip, classes, 1 if args.quick else args.repetitions))} |", flush=True)


if __name__ == "__main__":
    main()
