"""Check that a dataset is complete and readable, and show its classes and prompts."""

from __future__ import annotations

import os
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cocoamix.clip.class_names import class_words
from cocoamix.clip.templates import dataset_template
from cocoamix.errors import UserError, printable
from cocoamix.features.reading import why_unreadable
from cocoamix.io.progress import progress
from cocoamix.registry import plain_name

from . import building
from .other_names import renames
from .parts import how_to_get, missing_parts, state
from .sources import Source
from .split_origin import about_split

SHOWN = 40  # classes, unless --all is given
LISTED = 10  # unreadable images, unless --all is given
BLOCK = 4096  # images that are queued at a time


def check(
    name: str,
    root: Path,
    options: Sequence[str] = (),
    fast: bool = False,
    every_class: bool = False,
    names_file: Path | None = None,
) -> bool:
    """Check a dataset and print the findings; return whether a run could start.

    Args:
        name: The name of the dataset, or the path of a configuration file.
        root: The data folder.
        options: KEY VALUE pairs that change the configuration.
        fast: Whether not to open the images.
        every_class: Whether to print every class, every unreadable image and every draw that does not fit.
        names_file: File to write the class names of own images to.
    """
    source = building.source_of(name)
    if names_file is not None:
        _refuse_names_file(names_file, name, own=source is None)
    if source is not None:
        print(f"{source.title} ({source.name})\n  home     {source.homepage}\n  licence  {source.licence}")
        if not _parts_are_there(source, root):
            return False
    try:
        cfg = building.make_cfg(name, str(root), options)
    except building.NoLoaderError as error:
        print(f"\n{error}")
        return False
    from cocoamix.datasets.common.missing import collect_missing

    plain = plain_name(cfg.DATASET.NAME)
    try:
        with collect_missing() as missing:
            dataset, notes = building.build(cfg)
    except UserError as error:
        print(f"\nnot loaded: {error}\n\n{plain} is not ready for training.")
        return False
    building.print_notes(notes)
    _print_classes(dataset, dataset_template(plain), every_class)
    _note_doubtful_names(dataset, own=source is None)
    if names_file is not None:
        _write_names(names_file, dataset)
    ready = _images_are_good(dataset, missing, fast, every_class)
    if not ready:
        skipping = cfg.DATASET.BAD_IMAGES == "skip"
        print(f"  {'DATASET.BAD_IMAGES skip leaves them out.' if skipping else _advice(own=source is None)}")
        ready = skipping
    ready = _draws_fit(cfg, dataset, every_class) and ready
    print(f"\n{plain} is ready for training." if ready else f"\n{plain} is not ready for training: see above.")
    return ready


def _parts_are_there(source: Source, root: Path) -> bool:
    """Print which parts the data folder has; return whether all required ones are there."""
    source = source.at(root)
    if source.synthetic:
        print(f"  folder   {state(source, root)}; `cocoamix shapes write DIR` writes it as files")
        return True
    folder = root / source.folder
    print(f"  folder   {folder}{'' if folder.is_dir() else ' (missing)'}")
    missing = missing_parts(source, root)
    for part in source.parts:
        what = about_split(source, folder / part.path) if part.is_split and part not in missing else part.what
        print(f"  [{'missing' if part in missing else 'found'}] {part.path}: {what}")
        if part in missing:
            if not part.required:
                print(f"      without it, {part.instead}")
            for line in how_to_get(source, part, root):
                print(f"      {line}")
    lacking = [part for part in missing if part.required]
    if missing and source.by_hand and any(not source.providers(part.path) for part in missing):
        print(f"  manual download: {source.by_hand}")
    if any(source.providers(part.path) for part in missing):
        print(f"  to download: cocoamix data download {source.name} --root {root}")
    commands = renames(source, missing, root)
    if commands:
        print("  It seems to be there under another name. To rename it:")
        print("\n".join(f"      {command}" for command in commands))
    if lacking:
        print(f"\n{source.name} is not ready for training: {', '.join(part.path for part in lacking)} missing.")
    return not lacking


def _print_classes(dataset: Any, template: str, every_class: bool) -> None:
    counts = [Counter(item.label for item in items or ()) for items in (dataset.train_x, dataset.val, dataset.test)]
    sizes = [sum(count.values()) for count in counts]
    print(f"\n{len(dataset.classnames)} classes; images: {sizes[0]:,} train, {sizes[1]:,} val, {sizes[2]:,} test")
    shown = len(dataset.classnames) if every_class or len(dataset.classnames) <= SHOWN else SHOWN // 2
    print(f"{'label':>6}{'train':>8}{'val':>8}{'test':>8}  prompt")
    for label, name in list(enumerate(dataset.classnames))[:shown]:
        prompt = printable(template.format(class_words(name)))
        print(f"{label:>6}" + "".join(f"{count[label]:>8}" for count in counts) + f"  {prompt}")
    if shown < len(dataset.classnames):
        print(f"   ... {len(dataset.classnames) - shown} more; --all shows them")
    train = sorted(counts[0][label] for label in range(len(dataset.classnames)))
    fewest = min(range(len(dataset.classnames)), key=lambda label: counts[0][label])
    reason = f", because {dataset.classnames[fewest]!r} has no more" if train[0] < train[-1] else ""
    print(
        f"training images of a class: {train[0]} to {train[-1]}, median {statistics.median(train):g}; "
        f"so at most {train[0]} shots{reason}"
    )


def _note_doubtful_names(dataset: Any, own: bool) -> None:
    """Print class names that may mean little in a prompt. They never stop a run."""
    from cocoamix.datasets.own.class_names import doubtful_names

    doubtful = doubtful_names(dataset.classnames)
    if doubtful:
        shown = "; ".join(f"{name!r} ({why})" for name, why in doubtful[:5])
        advice = " DATASET.CLASSNAMES can name them." if own else ""
        print(f"note: {len(doubtful)} class names may mean little to CLIP: {shown}.{advice}")


def _refuse_names_file(path: Path, name: str, own: bool) -> None:
    if not own:
        raise UserError(f"--write-names is for your own images (folder or csv), not for {name}. Leave it out.")
    if path.exists():
        raise UserError(f"--write-names names {path}, which exists and is not overwritten. Name a new file.")


def _write_names(path: Path, dataset: Any) -> None:
    """Write the class names in the form that DATASET.CLASSNAMES reads."""
    from cocoamix.datasets.own.class_names import write_names

    names = getattr(dataset, "categories", {})  # those of another code base have none
    write_names(path, names)
    print(f"Written: {path}, with the names of {len(names)} classes, to be edited for DATASET.CLASSNAMES")


def _draws_fit(cfg: Any, dataset: Any, every: bool) -> bool:
    """Print the stored few-shot draws that do not fit the dataset; return whether all fit."""
    found = building.why_draws_do_not_fit(cfg, dataset)
    if not found:
        return True
    wrong = {path: reason for path, reason in found.items() if reason}
    print(f"few-shot draws: {len(found) - len(wrong):,} of {len(found):,} stored draws fit the dataset")
    shown = list(wrong.values())[: None if every else 1]
    for reason in shown:
        print(printable(f"  {reason}"))
    if len(shown) < len(wrong):
        others = ", ".join(path.name for path in list(wrong)[len(shown) :])
        print(printable(f"  The same holds for {others}; --all shows why"))
    return not wrong


def _advice(own: bool) -> str:
    """Return advice on bad images. Removing a file would not help, because a split file or a table may list it."""
    again = "Copy them again from an intact source" if own else "Extract the archive again"
    return f"{again}, or train with DATASET.BAD_IMAGES skip, which leaves them out."


def _images_are_good(dataset: Any, missing: Mapping[str, None], fast: bool, every: bool) -> bool:
    """Print the missing and the unreadable images; return whether there are none."""
    items = [item for part in (dataset.train_x, dataset.val, dataset.test) for item in part or ()]
    files = sorted({item.impath for item in items if not hasattr(item, "draw")} | set(missing))
    if not files:
        print("images: not stored as separate files, so there is nothing to check")
        return True
    if missing:
        print(f"images: {len(missing):,} of {len(files):,} images are missing")
        _print_missing(missing)
    present = [path for path in files if path not in missing]
    if fast:
        return not missing
    tried = progress(_try_all(present), max(1, len(present)), "opening images")
    bad = [(path, reason) for path, reason in zip(present, tried, strict=True) if reason]
    print(f"images: {len(present) - len(bad):,} of {len(present):,} files can be read")
    shown = bad if every else bad[:LISTED]
    for path, reason in shown:
        print(printable(f"  {path}: {reason}"))
    if len(shown) < len(bad):
        print(f"  ... and {len(bad) - len(shown)} more; --all shows them")
    return not bad and not missing


def _print_missing(missing: Iterable[str]) -> None:
    """Print the missing images. If their folder is missing, print only the folder."""
    folders: dict[str, list[str]] = {}
    for path in sorted(missing):
        folders.setdefault(os.path.dirname(path), []).append(path)
    for folder, paths in folders.items():
        if os.path.isdir(folder):
            print("\n".join(printable(f"  {path}") for path in paths))
        else:
            print(f"  {printable(folder)}/: the folder is missing, with {len(paths):,} images")


def _try_all(files: Sequence[str]) -> Iterator[str]:
    """Open images in parallel, and yield why each cannot be read; empty if it can."""
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        for start in range(0, len(files), BLOCK):  # not all at once, because ImageNet has over a million
            yield from pool.map(why_unreadable, files[start : start + BLOCK])
