"""Speed of `cocoamix predict` compared with a plain loop over OpenAI's clip, and growth of its memory.

python benchmarks/predict.py [--images 2000]

It trains a tiny prompt on synthetic images, then labels the same images in several ways, each in a separate process:
with a cold and with a warm feature store, and image by image with OpenAI's `clip`, as in its README. Memory is the peak
of the process, for all of the images and for a fifth of them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def label_ours(run: str, images: list[str]) -> None:
    """Label images with the package, as the command does."""
    from cocoamix.predict.classifier import load
    from cocoamix.run.given import Item

    classifier = load(run)
    start = time.monotonic()
    for _ in classifier.stream(Item(path) for path in images):
        pass
    report(time.monotonic() - start, len(images))


def label_plainly(run: str, images: list[str]) -> None:
    """Label images one by one with OpenAI's clip and the class vectors of the run."""
    import torch
    from PIL import Image

    from cocoamix.compat import import_openai_clip
    from cocoamix.predict.classifier import load
    from cocoamix.predict.linear import find_linear

    import_openai_clip()
    from clip.clip import _transform

    classifier = load(run, store=False)
    matrix, tower = find_linear(classifier).matrix, classifier.trainer.clip.each()[0].visual
    preprocess = _transform(classifier.trainer.cfg.INPUT.SIZE[0])
    start = time.monotonic()
    with torch.no_grad():
        for path in images:
            features = tower(preprocess(Image.open(path))[None])
            (features / features.norm(dim=-1, keepdim=True) @ matrix.T).softmax(dim=-1).argmax()
    report(time.monotonic() - start, len(images))


def report(seconds: float, count: int) -> None:
    """Print images per second and peak memory, for the parent process to read."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"per_second": count / seconds, "megabytes": peak}))


def measure(way: str, run: Path, images: Path, count: int, store: Path) -> dict[str, float]:
    """Measure one way in a separate process."""
    command = [sys.executable, __file__, "--way", way, str(run), str(images), "--images", str(count)]
    environment = {**os.environ, "COCOAMIX_CACHE": str(store)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def prepare(folder: Path) -> tuple[Path, Path]:
    """Train a tiny prompt and write images; return both folders."""
    from cocoamix.shapes.command import main as shapes
    from cocoamix.train import main as train

    configs = ROOT / "configs"
    files = ["--dataset-config-file", str(configs / "datasets/colour_shape.yaml")]
    files += ["--config-file", str(configs / "trainers/CoCoAMix/tiny.yaml"), "--trainer", "CoCoAMix", "--seed", "1"]
    run = folder / "run"
    if train([*files, "--output-dir", str(run), "DATASET.NUM_SHOTS", "1", "OPTIM.MAX_EPOCH", "1"]):
        raise SystemExit("The training failed.")
    shapes(["write", str(folder / "images"), "--dataset", "ColourShape"])
    return run, folder / "images"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--way", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        way, run, folder = args.way
        images = sorted(str(path) for path in Path(folder).rglob("*.png"))[: args.images]
        (label_plainly if way == "plain" else label_ours)(run, images)
        return
    with tempfile.TemporaryDirectory() as scratch:
        trained, images = prepare(Path(scratch))
        store, fifth = Path(scratch) / "store", max(1, args.images // 5)
        plain = measure("plain", trained, images, args.images, store)
        small = measure("ours", trained, images, fifth, Path(scratch) / "other")
        cold = measure("ours", trained, images, args.images, store)
        warm = measure("ours", trained, images, args.images, store)
    print(f"\n{args.images:,} images with the tiny backbone, images per second (and times the plain loop)")
    for name, found in (
        ("plain loop over OpenAI's clip", plain),
        ("predict, cold store", cold),
        ("predict, warm", warm),
    ):
        print(f"{name:32} {found['per_second']:8.0f}  {found['per_second'] / plain['per_second']:5.1f}")
    grown = cold["megabytes"] / small["megabytes"]
    print(f"peak memory for {args.images:,} images over that for {fifth:,}: {grown:.2f}")


if __name__ == "__main__":
    main()
