"""Generates docs/KEYS.md from the table of keys.

    python -m cocoamix.config.document [FILE]

rewrites the page after a change to the table. A test checks that the page is up to date.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from cocoamix.errors import UserError, run_command
from cocoamix.io.files import write_atomically

from .allowed import show
from .key import ROLES, FromCheckpoint, Key
from .table import SECTIONS
from .table.section import Section

PAGE = Path(__file__).resolve().parents[2] / "docs" / "KEYS.md"

_HEAD = """\
# Configuration keys

<!-- Written by `python -m cocoamix.config.document` from cocoamix/config/table: change the table, not this page. -->

Every key that this project adds to Dassl's, with its default, allowed values, meaning and role. Set a key in a YAML
file (`--config-file`, `--dataset-config-file`) or at the end of a command, as in
`python train.py ... TRAINER.COCOAMIX.W 7.0`. Unknown keys and invalid values are refused with a message.

## Roles

The role of a key defines how results, evaluations and the report treat it. "Runs that agree" are runs with the same
value. The *protocol* is the set of facts in [results.json](RESULTS.md#keys) that must agree before two results are
compared.
"""

_CHECKPOINT = """\
A role may be followed by:

- `checkpoint`: an evaluation uses the value from training, and prints a note if you give another one.
- `checkpoint with template`: the same, but only for methods that train with the hand-crafted prompt (KgCoOp, ProGrad,
  DePTKgCoOp).
- `checkpoint if empty`: an evaluation that leaves the key empty uses the value from training.

When you resume a run, all keys except `hidden` ones must keep their values. Sections of other trainers are ignored.
"""

_FROM_CHECKPOINT = {
    FromCheckpoint.NEVER: "",
    FromCheckpoint.ALWAYS: ", checkpoint",
    FromCheckpoint.IF_TRAINED_WITH_TEMPLATE: ", checkpoint with template",
    FromCheckpoint.IF_EMPTY: ", checkpoint if empty",
}


_INDEX = """\
## Full names

The tables leave out the beginning that their keys share. Search this list for a full name.
"""


def page() -> str:
    """Return the page."""
    roles = _table(("role", "meaning"), ((f"`{role.name}`", role.meaning) for role in ROLES))
    return "\n".join([_HEAD, roles, _CHECKPOINT, *map(_section, SECTIONS), _INDEX, *_index(), ""])


def _section(section: Section) -> str:
    keys = _ours(section)
    start = _shared_start(keys)
    begin = f"All keys begin with `{start}`, as in `{keys[0].name}`." if start else ""
    text = " ".join(filter(None, (section.text, begin)))
    table = _table_of_ours(keys, start) if keys else _table_of_dassls(section.keys)
    return "\n".join([f"## {section.title}\n", *([f"{text}\n"] if text else []), table])


def _ours(section: Section) -> list[Key]:
    return [key for key in section.keys if key.ours]


def _shared_start(keys: Sequence[Key]) -> str:
    """Return the beginning that the names of several keys share, such as `TRAINER.COOP.`; else nothing."""
    levels = zip(*(key.path[:-1] for key in keys), strict=False) if len(keys) > 1 else ()
    return "".join(f"{level[0]}." for level in itertools.takewhile(lambda level: len(set(level)) == 1, levels))


def _table_of_ours(keys: Iterable[Key], start: str) -> str:
    """Return a table of our keys. Keys with the same comment, one after the other, share a row."""
    rows = []
    for _, group in itertools.groupby(keys, key=lambda key: (key.comment, _role(key))):
        alike = list(group)
        names = ", ".join(f"`{key.name.removeprefix(start)}`" for key in alike)
        defaults, allowed = (_joined(map(of, alike)) for of in (lambda key: show(key.default), _allowed))
        rows.append((names, defaults, allowed, alike[0].comment, _role(alike[0])))
    return _table(("key", "default", "allowed", "what it does", "role"), rows)


def _table_of_dassls(keys: Iterable[Key]) -> str:
    """Return a table of Dassl's keys by role. Keys with the same role and the same allowed values share a row."""
    found: dict[tuple[str, str], list[str]] = {}
    for key in sorted(keys, key=lambda key: ROLES.index(key.role)):
        found.setdefault((_role(key), _allowed(key)), []).append(f"`{key.name}`")
    rows = ((role, ", ".join(names), allowed) for (role, allowed), names in found.items())
    return _table(("role", "keys", "allowed"), rows)


def _joined(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


def _index() -> list[str]:
    """Return lines with the full names of the keys whose rows have a part of it, and links to their tables."""
    lines = []
    for section in SECTIONS:
        keys = _ours(section)
        if _shared_start(keys):
            anchor = re.sub(r"[^\w\- ]", "", section.title.lower()).replace(" ", "-")
            lines.append(f"- [{section.title}](#{anchor}): {', '.join(f'`{key.name}`' for key in keys)}")
    return lines


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:], ""])


def _allowed(key: Key) -> str:
    """Return the allowed values of a key, or its types."""
    if key.allowed is not None:
        return key.allowed.describe()
    if not key.ours:
        return ""
    names = {bool: "`True`, `False`", int: "integer", float: "number", str: "string", list: "list"}
    return ", ".join(names[kind] for kind in (type(key.default), *key.also))


def _role(key: Key) -> str:
    return key.role.name + _FROM_CHECKPOINT[key.from_checkpoint]


def write(path: Path) -> None:
    """Write the page to a file."""
    if not path.parent.is_dir():
        raise UserError(f"{path} cannot be written: there is no folder {path.parent}. Name a file in one that exists.")
    try:
        write_atomically(path, lambda file: file.write(page().encode()))
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from error
    print(f"{path} is written")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m cocoamix.config.document", description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, default=PAGE, help="the page (default: docs/KEYS.md of the tree)")
    return run_command(partial(write, parser.parse_args(argv).file), "Stopped.")


if __name__ == "__main__":
    sys.exit(main())
