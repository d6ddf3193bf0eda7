"""Class names for the user's own images: from folder names, or from a file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from cocoamix.clip.class_names import plain_class, tidy_class
from cocoamix.errors import UserError, brief, encodable, nearest, some_of
from cocoamix.io.files import write_json, write_text
from cocoamix.io.texts import read_json, read_text

_NUMBERED = re.compile(r"^(\d+)[._ ]+(?=[^\W\d_])")  # "001.Albatross", "12_cat": a number, a separator, a letter


def names_of_folders(folders: Sequence[str]) -> dict[str, str]:
    """Return the class name of each folder.

    Leading numbers are dropped only if they are a numbering, that is, every folder has one and all are different.
    Hyphens, capitals and joined words stay, because `T-shirt` and `McLaren` are correct. DATASET.CLASSNAMES can name a
    file with other class names.
    """
    numbered = bool(numbering(folders))
    return {folder: tidy_class(_NUMBERED.sub("", folder, count=1) if numbered else folder) for folder in folders}


def numbering(folders: Sequence[str]) -> list[int]:
    """Return the leading numbers of the folder names; empty if they are not a numbering."""
    found = [_NUMBERED.match(folder) for folder in folders]
    numbers = [int(one[1]) for one in found if one]
    return numbers if 1 < len(folders) == len(set(numbers)) else []


def read_names(path: Path, classes: Sequence[str], what: str) -> dict[str, str]:
    """Read the class name of each of `classes` from a file.

    Other classes are ignored, so that several datasets can share a file.

    Args:
        path: JSON of {class: name}, or lines of a class, a separator (tab, comma, semicolon or space) and its name.
        classes: The classes, as the dataset denotes them.
        what: How messages call a class, such as "folder".
    """
    if not os.path.isfile(path):
        raise UserError(f"DATASET.CLASSNAMES names {path}, which is not a file.")
    text = read_text(path)
    given = _from_json(path) if path.suffix.lower() == ".json" else _from_lines(path, text, classes)
    missing = [one for one in classes if one not in given]
    if missing:
        hint = nearest(missing[0], [line.strip() for line in text.splitlines()]) if given else ""
        raise UserError(
            f"{path} has no class name for {len(missing)} of {len(classes)} {what}s: {some_of(missing)}.{hint} Add "
            f"a line for each: the {what}, a tab or a comma, and the class name.{_how_to_list(classes, what)}"
        )
    names = {one: tidy_class(given[one]) for one in classes}
    for one, name in names.items():
        if not name:
            raise UserError(f"{path} gives the {what} {one!r} an empty class name.")
    return names


def _how_to_list(classes: Sequence[str], what: str) -> str:
    """Return how to write the lines, unless the classes are numbers, which are no names."""
    if all(one.isdecimal() for one in classes):
        return ""
    name = "folder" if what == "folder" else "csv"
    return f" `cocoamix data check {name} --root DIR --write-names FILE` writes such lines for all of them."


def write_names(path: Path, names: Mapping[str, str]) -> None:
    """Write the class name of each class in the form that `read_names` reads."""
    if path.suffix.lower() == ".json":
        write_json(path, dict(names))
        return
    text = "".join(f"{one}\t{name}\n" for one, name in names.items())
    if encodable(text) != text or _from_lines(path, text, list(names)) != dict(names):
        raise UserError(f"{path} is not written, because lines cannot hold some names. Give it the ending .json.")
    write_text(path, text)


def _from_json(path: Path) -> dict[str, str]:
    content = read_json(path)
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content.values()):
        raise UserError(f'{path} must be a JSON object of strings, such as {{"n01440764": "tench"}}.')
    return content


def _from_lines(path: Path, text: str, classes: Sequence[str]) -> dict[str, str]:
    """Match each line to the longest class that it starts with, because folder names may have spaces and commas."""
    by_length = sorted(classes, key=len, reverse=True)
    given: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        one = next((c for c in by_length if stripped.startswith(c) and stripped[len(c) : len(c) + 1] in "\t,; "), None)
        if one is None:
            continue
        name = stripped[len(one) :].strip().lstrip(",;").strip()
        if len(name) > 1 and name[0] == name[-1] == '"':  # as spreadsheets quote a name with a comma
            name = name[1:-1]
        if one in given and given[one][0] != name:
            raise UserError(
                f"{path} gives {one!r} two class names: {brief(given[one][0])} in line {given[one][1]} "
                f"and {brief(name)} in line {number}."
            )
        given[one] = name, number
    return {one: name for one, (name, _) in given.items()}


def refuse_same_names(names: Mapping[str, str], what: str) -> None:
    """Refuse two classes with the same name, and so the same prompt, and names that are not text."""
    seen: dict[str, str] = {}
    for one, name in names.items():
        if not name:
            raise UserError(f"The {what} {one!r} does not yield a class name. Set one in a file: DATASET.CLASSNAMES.")
        if encodable(name) != name:
            raise UserError(f"The name of the {what} {name} is not UTF-8, so it cannot be used in a prompt. Rename it.")
        other = seen.setdefault(plain_class(name), one)
        if other != one:
            raise UserError(
                f"The {what}s {other!r} and {one!r} have the same class name, {name!r}, and so the same prompt. "
                "Give them different names in a file: DATASET.CLASSNAMES."
            )


def doubtful_names(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return names that probably mean little to CLIP's text encoder, with the reason."""
    found = []
    for name in names:
        if re.fullmatch(r"[\W\d_]+", name):
            found.append((name, "no word"))
        elif re.fullmatch(r"n\d{8}", name):
            found.append((name, "a WordNet number, not a word"))
        elif re.search(r"[a-z][A-Z]", name):
            found.append((name, "looks like joined words"))
        elif re.match(r"\d+[._\- ]", name):
            found.append((name, "begins with a number"))
        elif not name.isascii():
            found.append((name, "CLIP's vocabulary is English"))
    return found
