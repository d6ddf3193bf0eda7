"""Few-shot draws as small JSON files of image paths and hashes, so that two machines use the same images."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from cocoamix import __version__
from cocoamix.errors import UserError, brief, printable
from cocoamix.io.files import write_text
from cocoamix.io.progress import progress
from cocoamix.io.texts import read_json
from cocoamix.registry import plain_name

from . import building
from .parts import how_to_get, missing_parts

FORMAT = "cocoamix few-shot manifest"
VERSION = 1
SHOWN = 20  # mismatches that are printed
FIXED = {  # keys that cannot be changed for a draw, and why
    "SEED": "export takes --seed, and import the seed in the file",
    "DATASET.NUM_SHOTS": "export takes --shots, and import the shots in the file",
    "DATASET.SUBSAMPLE_CLASSES": "a draw is of all classes, and a run takes its half of them",
    "DATASET.PARTITION": "a draw is of all classes, and a run takes its half of them",
    "DATASET.ROOT": "--root is the data folder",
    "DATASET.NAME": "export takes a name, and import the one in the file",
}
Row = tuple[str, int, str]  # path below the dataset's folder, label, SHA-256


def sha256_of(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def export_manifest(name: str, root: Path, shots: int, seed: int, out: Path, options: Sequence[str] = ()) -> None:
    """Write a manifest of the training and validation images that a run with these shots and this seed uses."""
    from cocoamix.datasets.common.kept_draws import validation_shots

    if shots < 1 or seed < 0:
        raise UserError(f"--shots is {shots} and --seed is {seed}; they must be at least 1 and 0.")
    if out.is_dir():
        raise UserError(f"--out {out} is a folder. Name the JSON file to write.")
    cfg = _cfg(name, root, options, shots, seed)
    plain = plain_name(cfg.DATASET.NAME)
    dataset, notes = building.build(cfg)
    building.print_notes(notes)
    if not dataset.dataset_dir or any(hasattr(item, "draw") for item in dataset.train_x):
        raise UserError(
            f"The images of {plain} are not separate files, so there is nothing to hash: "
            "the seed alone gives the same draw everywhere."
        )
    if max(Counter(item.label for item in dataset.train_x).values()) > shots:
        raise UserError(f"{plain} has no few-shot draw: all of its images are for testing.")
    train = _rows(dataset.train_x, dataset.dataset_dir)
    # CoOp tests on ImageNet's validation images, so no validation images are drawn.
    drawn_val = _paths(dataset.val) != _paths(dataset.test)
    val = _rows(dataset.val or [], dataset.dataset_dir) if drawn_val else None
    head = {
        "format": FORMAT,
        "version": VERSION,
        "dataset": plain,
        "shots": shots,
        "seed": seed,
        "validation_shots": validation_shots(shots) if drawn_val else None,
        "draw": "CoOp's: random.seed(seed), then train, then val, class by class; or the draw that was kept",
        "written_by": f"cocoamix {__version__}",
        "classnames": dataset.classnames,
    }
    lines = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items()]
    lines += [_listed("train", train), _listed("val", val)]
    try:
        write_text(out, "{\n" + ",\n".join(lines) + "\n}\n")
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror or error}.") from error
    print(f"{out}: {len(train)} train and {len(val or ())} val images of {len(dataset.classnames)} classes")


def _cfg(name: str, root: Path, options: Sequence[str], shots: int = -1, seed: int = -1) -> Any:
    """Return the configuration of a draw, which has all classes and the published split."""
    for key in options[::2]:
        if key in FIXED:
            raise UserError(f"{key} cannot be changed here: {FIXED[key]}.")
    cfg = building.make_cfg(name, str(root), options, shots, seed)
    if cfg.DATASET.SUBSAMPLE_CLASSES != "all":
        raise UserError(f"{name} sets DATASET.SUBSAMPLE_CLASSES, but {FIXED['DATASET.SUBSAMPLE_CLASSES']}.")
    source = building.source_of(name)
    lacking = [part for part in missing_parts(source, root) if part.is_split] if source else []
    if source and lacking:
        raise UserError(
            f"{root / source.folder / lacking[0].path} is missing, so the images would be divided at random, "
            f"differently on every machine: {'; '.join(how_to_get(source, lacking[0], root))}. "
            f"Or: cocoamix data download {source.name} --root {root}"
        )
    return cfg


def _paths(items: Any) -> list[str]:
    return [item.impath for item in items or ()]


def _listed(key: str, rows: Sequence[Row] | None) -> str:
    """Return a JSON list with one line per image, which is easy to compare."""
    if rows is None:
        return f'  "{key}": null'
    inner = ",\n".join(f"    {json.dumps(row, ensure_ascii=False)}" for row in rows)
    return f'  "{key}": [\n{inner}\n  ]' if rows else f'  "{key}": []'


def _rows(items: Sequence[Any], folder: str) -> list[Row]:
    rows = []
    for item in progress(items, len(items), "hashing images"):
        relative = Path(os.path.relpath(item.impath, folder)).as_posix()
        if relative.startswith("../"):
            raise UserError(f"{item.impath} is not below {folder}, so other machines could not find it.")
        rows.append((relative, int(item.label), sha256_of(item.impath)))
    return rows


def read_manifest(file: Path) -> dict[str, Any]:
    """Read and validate a manifest."""
    content = read_json(file)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UserError(f"{file} is not a {FORMAT}.")
    if content.get("version") != VERSION:
        version = brief(content.get("version"))
        raise UserError(f"{file} has version {version}; this cocoamix reads version {VERSION}. Use a newer cocoamix.")
    try:
        _validate(content)
    except (KeyError, TypeError, ValueError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise UserError(f"{file} is damaged: {what}. Export it again.") from error
    return content


def _validate(content: dict[str, Any]) -> None:
    """Refuse content that `export_manifest` cannot have written."""
    from cocoamix.datasets.common.kept_draws import validation_shots

    for key, least in (("shots", 1), ("seed", 0)):
        if type(content[key]) is not int or content[key] < least:
            raise ValueError(f"its {key} is {brief(content[key])}, which is not a whole number of at least {least}")
    if not isinstance(content["dataset"], str):
        raise ValueError(f"its dataset is {brief(content['dataset'])}, which is not a name")
    names = content["classnames"]
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError("its classnames are not a list of names")
    if not isinstance(content["train"], list) or not isinstance(content["val"], (list, type(None))):
        raise ValueError("its train or val is not a list")
    shots = content["shots"]
    seen: set[str] = set()
    for split, most in (("train", shots), ("val", validation_shots(shots))):
        counts = Counter(_label(row, len(names), seen) for row in content[split] or ())
        for label, name in enumerate(names):
            if split == "train" and not counts[label]:
                raise ValueError(f"it has no train image of the class {label} ({name})")
            if counts[label] > most:
                raise ValueError(f"it has {counts[label]} {split} images of the class {label} ({name}), not {most}")


def _label(row: Any, classes: int, seen: set[str]) -> int:
    """Return the label of a row. Refuse anything but a path that was not seen before, a label and a SHA-256."""
    if not isinstance(row, list) or len(row) != 3 or not isinstance(row[0], str):
        raise ValueError(f"a row is {brief(row)}, which is not a path, a label and a SHA-256")
    path, label, digest = row
    pure = PurePosixPath(path)
    if not pure.parts or path.startswith("/") or ".." in pure.parts or "\\" in path or "\0" in path:
        raise ValueError(f"the path {brief(path)} is not below a dataset's folder")
    if type(label) is not int or not 0 <= label < classes:
        raise ValueError(f"{path} has the label {brief(label)}, which is not a whole number below {classes}")
    if not isinstance(digest, str) or not re.fullmatch("[0-9a-f]{64}", digest):
        raise ValueError(f"{path} has {brief(digest)}, which is not a SHA-256")
    if str(pure) in seen:
        raise ValueError(f"{path} occurs twice")
    seen.add(str(pure))
    return label


def import_manifest(file: Path, root: Path, options: Sequence[str] = (), force: bool = False) -> bool:
    """Save the draw of a manifest if its images are the same as the local ones; return whether they are.

    The draw is written where CoOp's loaders and ours look for it.
    """
    from cocoamix.datasets.common.kept_draws import draw_file

    content = read_manifest(file)
    shots, seed = content["shots"], content["seed"]
    name = building.resolve_name(content["dataset"])
    full, notes = building.build(_cfg(name, root, options))
    building.print_notes(notes)
    if not full.dataset_dir:
        raise UserError(f"{name} has no folder in {root} to save a draw in.")
    wrong = _mismatches(content, full)
    if wrong:
        print(f"{len(wrong)} differences between {file} and {full.dataset_dir}:")
        for line in wrong[:SHOWN]:
            print(printable(f"  {line}"))
        if len(wrong) > SHOWN:
            print(f"  ... and {len(wrong) - SHOWN} more")
        print("Nothing was written.")
        return False
    cache = draw_file(full.dataset_dir, shots, seed)
    if cache.exists() and not force:
        if _same_draw(content, name, root, options):
            print(f"{cache} already has this draw.")
            return True
        raise UserError(f"{cache} has another draw. --force replaces it; to keep it, move it elsewhere.")
    _write_cache(cache, content, full.dataset_dir)
    print(f"{cache}: {len(content['train'])} train and {len(content['val'] or ())} val images, all hashes as in {file}")
    return True


def _mismatches(content: dict[str, Any], full: Any) -> list[str]:
    """Return a line for each difference between the local images or classes and the manifest."""
    names = content["classnames"]
    wrong = [
        f"class {label} is {theirs!r} in the manifest and {ours!r} here"
        for label, (theirs, ours) in enumerate(zip(names, full.classnames, strict=False))
        if theirs != ours
    ]
    if len(names) != len(full.classnames):
        wrong.append(f"{len(names)} classes in the manifest, {len(full.classnames)} here")
    if content["val"] is not None:  # a draw has validation images of every class that has any
        theirs, ours = ({label for _, label, _ in content["val"]}, {item.label for item in full.val or ()})
        wrong += [
            f"class {label}: val images only {'in the manifest' if label in theirs else 'here'}"
            for label in theirs ^ ours
        ]
    for key, items in (("train", full.train_x), ("val", full.val)):
        here = {Path(os.path.relpath(i.impath, full.dataset_dir)).as_posix(): i for i in items or ()}
        rows = content[key] or ()
        for path, label, digest in progress(rows, len(rows), f"hashing {key} images"):
            local = Path(full.dataset_dir, path)
            if not local.is_file():
                wrong.append(f"{path}: missing")
            elif sha256_of(local) != digest:
                wrong.append(f"{path}: a different image (its SHA-256 differs)")
            elif path not in here:
                wrong.append(f"{path}: not among the {key} images here; is the split different?")
            elif here[path].label != label:
                wrong.append(f"{path}: label {label} in the manifest, {here[path].label} here")
    return wrong


def _same_draw(content: dict[str, Any], name: str, root: Path, options: Sequence[str]) -> bool:
    """Return whether the saved draw is this one. An unreadable draw is not."""
    try:
        kept, _ = building.build(_cfg(name, root, options, content["shots"], content["seed"]))
    except UserError:
        return False
    for key, items in (("train", kept.train_x), ("val", kept.val)):
        if content[key] is not None:
            ours = [(Path(os.path.relpath(i.impath, kept.dataset_dir)).as_posix(), i.label) for i in items or ()]
            if ours != [(path, label) for path, label, _ in content[key]]:
                return False
    return True


def _write_cache(cache: Path, content: dict[str, Any], folder: str) -> None:
    from cocoamix.datasets.common.items import new_item
    from cocoamix.datasets.common.pickles import dump_items

    names = content["classnames"]
    draw = {
        key: [new_item(os.path.join(folder, path), label, names[label]) for path, label, _ in rows]
        for key, rows in (("train", content["train"]), ("val", content["val"]))
        if rows is not None  # ImageNet's draws have no val
    }
    try:
        dump_items(cache, draw)
    except OSError as error:
        raise UserError(f"{cache} cannot be written: {error.strerror or error}.") from error
