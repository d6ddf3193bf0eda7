"""Compare our datasets with CoOp's own loaders: items, order, labels, class names, few-shot draws, halves, split files.

    COOP_TREE=/path/to/CoOp DASSL_TREE=/path/to/Dassl.pytorch \\
        python benchmarks/parity_data.py --splits SPLITS [--eurosat DATA] [--write tests/datasets/coop_hashes.json]

SPLITS holds CoOp's published split files, DATA holds `eurosat/`. Images are empty placeholders, and for datasets
without a split file, small folders in the official layouts are created. CoOp's loaders run on real Dassl in one
process, ours without Dassl in another. CoOp needs scipy. The public trees are not edited; the only change, in memory,
is that `os.listdir` sorts, because CoOp takes images in the order of the file system.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
sys.path.append(str(HERE))

from tests.datasets import layouts  # noqa: E402

MODULES = {  # CoOp's file of each dataset
    "Caltech101": "caltech101",
    "DescribableTextures": "dtd",
    "EuroSAT": "eurosat",
    "FGVCAircraft": "fgvc_aircraft",
    "Food101": "food101",
    "ImageNet": "imagenet",
    "ImageNetA": "imagenet_a",
    "ImageNetR": "imagenet_r",
    "ImageNetSketch": "imagenet_sketch",
    "ImageNetV2": "imagenetv2",
    "OxfordFlowers": "oxford_flowers",
    "OxfordPets": "oxford_pets",
    "StanfordCars": "stanford_cars",
    "SUN397": "sun397",
    "UCF101": "ucf101",
}


def prepare(role: str) -> str:
    """Make one side importable, and return the name of its datasets package."""
    if role == "ours":
        importlib.import_module("cocoamix.datasets")  # with its keys
        return "cocoamix.datasets"
    sys.path[:0] = [str(Path(os.environ[name]).resolve()) for name in ("COOP_TREE", "DASSL_TREE")]
    importlib.import_module("cocoamix.compat").ensure_torchvision()
    if importlib.util.find_spec("wilds") is None:  # Dassl imports it for datasets that are not used here
        wilds: Any = types.ModuleType("wilds")
        wilds.get_dataset = None
        sys.modules["wilds"] = wilds
    listdir = os.listdir
    os.listdir = lambda path=".": sorted(listdir(path))  # type: ignore[assignment]
    return "datasets"


def builder(package: str) -> layouts.Build:
    """Return the function that builds a dataset as this side's train.py does, after setting the seed."""
    from dassl import __file__ as engine
    from dassl.config import get_cfg_default

    theirs = package == "datasets"
    tree = Path(os.environ["COOP_TREE"]).resolve() if theirs else HERE
    assert Path(engine).is_relative_to(Path(os.environ["DASSL_TREE"]).resolve() if theirs else HERE), engine

    def build(name: str, root: Path, seed: int, shots: int, subset: str) -> Any:
        cfg = get_cfg_default()
        cfg.DATASET.ROOT, cfg.DATASET.NUM_SHOTS, cfg.SEED = str(root), shots, seed
        cfg.DATASET.SUBSAMPLE_CLASSES, cfg.DATASET.FEWER_SHOTS = subset, True
        random.seed(seed)
        with contextlib.redirect_stdout(None):
            module = importlib.import_module(f"{package}.{MODULES[name]}")
            assert Path(str(module.__file__)).is_relative_to(tree), module.__file__
            return getattr(module, name)(cfg)

    return build


def cases(args: argparse.Namespace, build: layouts.Build) -> Iterator[tuple[str, str]]:
    """Yield the name of each case, and the hash of its dataset or split file."""
    scratch = Path(args.scratch)
    for name in layouts.PUBLISHED:
        yield from layouts.published_cases(name, build, Path(args.splits), scratch / "published")
    if args.eurosat:
        yield from eurosat_cases(build, Path(args.eurosat) / "eurosat", scratch / "eurosat")
    for name in layouts.OWN_SPLIT:
        yield from layouts.own_split_cases(name, build, scratch / "own")
    for name in ("FGVCAircraft", "ImageNet", *layouts.VARIANTS):
        yield from layouts.listed_cases(name, build, scratch / "listed")


def eurosat_cases(build: layouts.Build, source: Path, root: Path) -> Iterator[tuple[str, str]]:
    """Yield the cases of EuroSAT with its real images, which are linked."""
    (root / "eurosat").mkdir(parents=True)
    (root / "eurosat" / "2750").symlink_to(source.resolve() / "2750", target_is_directory=True)
    shutil.copyfile(source / "split_zhou_EuroSAT.json", root / "eurosat" / "split_zhou_EuroSAT.json")
    for subset in layouts.SUBSETS:
        for seed in layouts.SEEDS:
            for shots in layouts.SHOTS:
                dataset = build("EuroSAT", root, seed=seed, shots=shots, subset=subset)
                yield f"EuroSAT/images/shots_{shots}/seed{seed}/{subset}", layouts.digest(dataset, root)


def exchange(args: argparse.Namespace, build: layouts.Build) -> Iterator[tuple[str, str]]:
    """Yield cases built from the files of the other side: its draws and its list of ImageNet."""
    other = Path(args.other)
    for name in layouts.PUBLISHED:
        for subset in ("base", "new"):
            dataset = build(name, other / "published", seed=2, shots=4, subset=subset)
            yield f"{name}/published/shots_4/seed2/{subset}", layouts.digest(dataset, other / "published")
    root = other / "listed" / "ImageNet"
    for kept in (True, False):  # first from its draw, then drawn from its list
        if not kept:
            shutil.rmtree(root / "imagenet" / "split_fewshot")
        dataset = build("ImageNet", root, seed=3, shots=2, subset="all")
        yield (
            f"ImageNet/listed/shots_2/seed3/all{'' if kept else ' (drawn from the list)'}",
            layouts.digest(dataset, root),
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", required=True, help="folder of split_zhou_*.json")
    parser.add_argument("--eurosat", default="", help="data folder with eurosat/ and its images")
    parser.add_argument("--write", default="", help="file to save CoOp's hashes in")
    parser.add_argument("--role", choices=("ours", "theirs"), help=argparse.SUPPRESS)
    parser.add_argument("--scratch", default="", help=argparse.SUPPRESS)
    parser.add_argument("--other", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.splits = str(Path(args.splits).resolve())
    if args.role:
        build = builder(prepare(args.role))
        found = dict((exchange if args.other else cases)(args, build))
        print(json.dumps(found))
        return 0
    return compare(args)


def compare(args: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = (run(args, role, folder) for role in ("ours", "theirs"))
        wrong = [key for key in theirs if ours.get(key) != theirs[key]]
        print(f"{len(theirs)} datasets and split files made by both sides, {len(theirs) - len(wrong)} equal")
        pickles = check_pickles(Path(folder, "ours"))
        print(f"{pickles} saved files of ours hold nothing but Datum and built-ins")
        for role, other in (("ours", "theirs"), ("theirs", "ours")):
            read = run(args, role, folder, other)
            bad = [key for key in read if read[key] != theirs[key.partition(" (")[0]]]
            print(f"{len(read)} datasets from saved files of {other}, read by {role}: {len(read) - len(bad)} equal")
            wrong += bad
    for key in wrong:
        print(f"differs: {key}")
    if args.write and not wrong:
        Path(args.write).write_text(json.dumps(theirs, indent=1, sort_keys=True) + "\n")
    return 1 if wrong else 0


def check_pickles(folder: Path) -> int:
    """Check that the pickles below a folder, read as Dassl would, hold only Datum objects; return their number.

    pickle can run code in a file, so this must not be used for files that this benchmark did not write. Our loaders use
    a restricted unpickler.
    """
    importlib.import_module("cocoamix")
    found = sorted(folder.rglob("*.pkl"))
    for path in found:
        for items in pickle.loads(path.read_bytes()).values():
            assert {type(item).__qualname__ for item in items} == {"Datum"}
    return len(found)


def run(args: argparse.Namespace, role: str, folder: str, other: str = "") -> dict[str, str]:
    command = [sys.executable, str(Path(__file__).resolve()), "--role", role, "--splits", args.splits]
    eurosat = args.eurosat and str(Path(args.eurosat).resolve())
    command += ["--scratch", os.path.join(folder, role), "--eurosat", eurosat]
    command += ["--other", os.path.join(folder, other)] if other else []
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


if __name__ == "__main__":
    sys.exit(main())
