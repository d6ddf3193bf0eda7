"""A few-shot draw as a small JSON file: which images, with hashes, so that two labs use the same ones."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from cocoamix import __version__
from cocoamix.errors import UserError
from cocoamix.files import write_atomically, write_text
from cocoamix.progress import progress
from cocoamix.registry import PREFIX

from . import building

FORMAT = "cocoamix few-shot manifest"
VERSION = 1
SHOWN = 20  # mismatches
Row = tuple[str, int, str]  # path below the dataset's folder, label, SHA-256


def cache_of(folder: str, shots: int, seed: int) -> Path:
    """Return where CoOp keeps a draw."""
    return Path(folder, "split_fewshot", f"shot_{shots}-seed_{seed}.pkl")


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def export_manifest(name: str, root: Path, shots: int, seed: int, out: Path, options: Sequence[str] = ()) -> None:
    """Write the images that a run with this number of shots and this seed trains on and validates on."""
    if shots < 1 or seed < 0:
        raise UserError(f"A draw has at least one shot and a seed from 0 on, not --shots {shots} --seed {seed}.")
    cfg = building.make_cfg(name, str(root), options, shots, seed)
    dataset, _ = building.build(cfg)
    if not dataset.dataset_dir or any(hasattr(item, "draw") for item in dataset.train_x):
        raise UserError(
            f"The images of {cfg.DATASET.NAME} are no files of their own, so there is nothing to hash: "
            "the seed alone gives the same draw everywhere."
        )
    if max(Counter(item.label for item in dataset.train_x).values()) > shots:
        raise UserError(f"{cfg.DATASET.NAME} makes no few-shot draw: all of its images are for testing.")
    train = _rows(dataset.train_x, dataset.dataset_dir)
    # CoOp tests on ImageNet's validation images; they are no part of the draw.
    drawn_val = _paths(dataset.val) != _paths(dataset.test)
    val = _rows(dataset.val or [], dataset.dataset_dir) if drawn_val else None
    head = {
        "format": FORMAT,
        "version": VERSION,
        "dataset": cfg.DATASET.NAME.removeprefix(PREFIX),
        "shots": shots,
        "seed": seed,
        "validation_shots": min(shots, 4) if drawn_val else None,
        "draw": "CoOp's: random.seed(seed), then train, then val, class by class; or the draw that was kept",
        "written_by": f"cocoamix {__version__}",
        "classnames": dataset.classnames,
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items()]
    lines += [_listed("train", train), _listed("val", val)]
    write_text(out, "{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{out}: {len(train)} train and {len(val or ())} val images of {len(dataset.classnames)} classes")


def _paths(items: Any) -> list[str]:
    return [item.impath for item in items or ()]


def _listed(key: str, rows: Sequence[Row] | None) -> str:
    """Return a list with one line for each image, which stays small and can be compared line by line."""
    if rows is None:
        return f'  "{key}": null'
    inner = ",\n".join(f"    {json.dumps(row, ensure_ascii=False)}" for row in rows)
    return f'  "{key}": [\n{inner}\n  ]' if rows else f'  "{key}": []'


def _rows(items: Sequence[Any], folder: str) -> list[Row]:
    rows = []
    for item in progress(items, len(items), "hashing images"):
        relative = Path(os.path.relpath(item.impath, folder)).as_posix()
        if relative.startswith("../"):
            raise UserError(f"{item.impath} is not below {folder}, so another lab could not find it.")
        rows.append((relative, int(item.label), sha256_of(item.impath)))
    return rows


def read_manifest(file: Path) -> dict[str, Any]:
    """Read a manifest and refuse whatever is not one."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"There is no file {file}.") from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{file} cannot be read as JSON: {error}.") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UserError(f"{file} is not a {FORMAT}.")
    if content.get("version") != VERSION:
        raise UserError(f"{file} has version {content.get('version')}; this cocoamix reads {VERSION}. Use a newer one.")
    try:
        names = [str(name) for name in content["classnames"]]
        for key in ("train", "val"):
            for path, label, digest in content[key] or ():
                parts = PurePosixPath(path).parts
                if not parts or path.startswith("/") or ".." in parts or "\\" in path:
                    raise UserError(f"{file} names the path {path!r}, which is not below a dataset's folder.")
                if not 0 <= label < len(names) or len(digest) != 64:
                    raise ValueError(f"{path} has the label {label}")
        for key in ("shots", "seed"):
            if not isinstance(content[key], int) or content[key] < 0:
                raise ValueError(f"{key} is {content[key]!r}")
        str(content["dataset"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{file} is damaged ({type(error).__name__}: {error}).") from error
    return content


def import_manifest(file: Path, root: Path, options: Sequence[str] = (), force: bool = False) -> bool:
    """Check the images of a manifest against those here and keep its draw; return whether they are the same.

    The draw is written where CoOp's loaders and ours look for it.
    """
    content = read_manifest(file)
    shots, seed = content["shots"], content["seed"]
    name = building.resolve_name(content["dataset"])
    full, _ = building.build(building.make_cfg(name, str(root), options))
    if not full.dataset_dir:
        raise UserError(f"{name} has no folder in {root} to keep a draw in.")
    wrong = _mismatches(content, full)
    if wrong:
        print(f"{len(wrong)} differences between {file} and {full.dataset_dir}:")
        for line in wrong[:SHOWN]:
            print(f"  {line}")
        if len(wrong) > SHOWN:
            print(f"  ... and {len(wrong) - SHOWN} more")
        print("Nothing was written.")
        return False
    cache = cache_of(full.dataset_dir, shots, seed)
    if cache.exists() and not force:
        if _same_draw(content, name, root, options):
            print(f"{cache} holds this draw already.")
            return True
        raise UserError(f"{cache} holds another draw. --force replaces it; to keep it, move it away.")
    _write_cache(cache, content, full.dataset_dir)
    print(f"{cache}: {len(content['train'])} train and {len(content['val'] or ())} val images, all hashes as in {file}")
    return True


def _mismatches(content: dict[str, Any], full: Any) -> list[str]:
    """Return a line for each way in which the local images or classes differ from the manifest's."""
    names = content["classnames"]
    wrong = [
        f"class {label} is {theirs!r} there and {ours!r} here"
        for label, (theirs, ours) in enumerate(zip(names, full.classnames, strict=False))
        if theirs != ours
    ]
    if len(names) != len(full.classnames):
        wrong.append(f"{len(names)} classes there, {len(full.classnames)} here")
    for key, items in (("train", full.train_x), ("val", full.val)):
        here = {Path(os.path.relpath(i.impath, full.dataset_dir)).as_posix(): i for i in items or ()}
        rows = content[key] or ()
        for path, label, digest in progress(rows, len(rows), f"hashing {key} images"):
            local = Path(full.dataset_dir, path)
            if not local.is_file():
                wrong.append(f"{path}: missing")
            elif sha256_of(local) != digest:
                wrong.append(f"{path}: another image (its SHA-256 differs)")
            elif path not in here:
                wrong.append(f"{path}: not among the {key} images here; is the split another?")
            elif here[path].label != label:
                wrong.append(f"{path}: label {label} there, {here[path].label} here")
    return wrong


def _same_draw(content: dict[str, Any], name: str, root: Path, options: Sequence[str]) -> bool:
    """Tell whether the draw that is kept is this one. One that cannot be read is another."""
    try:
        kept, _ = building.build(building.make_cfg(name, str(root), options, content["shots"], content["seed"]))
    except UserError:
        return False
    for key, items in (("train", kept.train_x), ("val", kept.val)):
        if content[key] is not None:
            ours = [(Path(os.path.relpath(i.impath, kept.dataset_dir)).as_posix(), i.label) for i in items or ()]
            if ours != [(path, label) for path, label, _ in content[key]]:
                return False
    return True


def _write_cache(cache: Path, content: dict[str, Any], folder: str) -> None:
    from dassl.data.datasets import Datum

    names = content["classnames"]
    draw = {
        key: [Datum(impath=os.path.join(folder, path), label=label, classname=names[label]) for path, label, _ in rows]
        for key, rows in (("train", content["train"]), ("val", content["val"]))
        if rows is not None  # ImageNet's draws have no val
    }
    try:
        write_atomically(cache, lambda file: pickle.dump(draw, file))
    except OSError as error:
        raise UserError(f"{cache} cannot be written: {error.strerror}.") from error
