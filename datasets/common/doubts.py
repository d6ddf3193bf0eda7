"""Checks of a split that can be read: images in two splits, labels with two names, names with two labels."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from cocoamix.clip.class_names import plain_class
from cocoamix.errors import UserError

from .items import Items

NAMES = ("train", "val", "test")


def check_split(origin: str, train: Items, val: Items, test: Items) -> None:
    """Refuse a label with two class names; warn about other problems. CoOp's own splits have none."""
    names: dict[int, str] = {}
    for item in (*train, *val, *test):
        known = names.setdefault(item.label, item.classname)
        if known != item.classname:
            raise UserError(
                f"{origin}: the label {item.label} is {known!r}, but {item.classname!r} for {item.impath}. "
                "Give every label one class name."
            )
    _warn_same_names(origin, names)
    _warn_shared(
        origin, dict(zip(NAMES, ([item.impath for item in items] for items in (train, val, test)), strict=True))
    )


def _warn_same_names(origin: str, names: Mapping[int, str]) -> None:
    labels: dict[str, list[int]] = {}
    for label, name in sorted(names.items()):
        labels.setdefault(plain_class(name), []).append(label)
    twice = [numbers for numbers in labels.values() if len(numbers) > 1]
    if twice:
        shown = " and ".join(map(str, twice[0]))
        print(
            f"WARNING: {origin}: {len(twice)} class names have several labels; the first is {names[twice[0][0]]!r} "
            f"({shown}). Their prompts are the same, so no method can tell them apart."
        )


def _warn_shared(origin: str, paths: Mapping[str, Sequence[str]]) -> None:
    for one, other in (("train", "test"), ("val", "test"), ("train", "val")):
        here = set(map(os.path.normpath, paths[one]))
        shared = [path for path in paths[other] if os.path.normpath(path) in here]
        if shared:
            print(
                f"WARNING: {origin}: {len(shared)} images are in both {one} and {other}; the first is {shared[0]}. "
                "Results on them are too optimistic."
            )


def refuse_shared_files(origin: str, paths: Mapping[str, Sequence[str]]) -> None:
    """Refuse a file of the user's own images that is in two splits, even through links."""
    seen: dict[tuple[int, int], tuple[str, str]] = {}
    for split, listed in paths.items():
        for path in listed:
            try:
                status = os.stat(path)
            except OSError:  # missing, which is reported elsewhere
                continue
            first, other = seen.setdefault((status.st_dev, status.st_ino), (split, path))
            if first != split and status.st_ino:  # some file systems have no inode numbers
                raise UserError(
                    f"{origin}: {path} ({split}) and {other} ({first}) are the same file. Results on training "
                    "images are too optimistic: keep each image in one split."
                )
