"""Generates docs/KEYS.md from the table of keys.

    python -m cocoamix.config.document [FILE]

rewrites the page after a change to the table. A test checks that the page is up to date.
"""

from __future__ import annotations

import argparse
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

The role of a key says how results, evaluations and the report treat it. "Runs that agree" are runs with the same value.
The *protocol* is the set of facts in [results.json](RESULTS.md#keys) that must agree before two results are compared.
"""

_CHECKPOINT = """\
A role may be followed by:

- `checkpoint`: an evaluation uses the value from training, and prints a note if you give another one.
- `checkpoint with template`: the same, but only for methods that train with the hand-crafted prompt (KgCoOp, ProGrad,
  DePTKgCoOp).

When you resume a run, all keys except `hidden` ones must keep their values. Sections of other trainers are ignored.
"""

_FROM_CHECKPOINT = {
    FromCheckpoint.NEVER: "",
    FromCheckpoint.ALWAYS: ", checkpoint",
    FromCheckpoint.IF_TRAINED_WITH_TEMPLATE: ", checkpoint with template",
}


def page() -> str:
    """Return the page."""
    roles = _table(("role", "meaning"), ((f"`{role.name}`", role.meaning) for role in ROLES))
    return "\n".join([_HEAD, roles, _CHECKPOINT, *map(_section, SECTIONS)])


def _section(section: Section) -> str:
    lines = [f"## {section.title}\n", *([f"{section.text}\n"] if section.text else [])]
    ours = [key for key in section.keys if key.ours]
    if ours:
        rows = ((f"`{key.name}`", show(key.default), _allowed(key), key.comment, _role(key)) for key in ours)
        lines.append(_table(("key", "default", "allowed", "what it does", "role"), rows))
    else:
        lines.append(
            _table(("key", "allowed", "role"), ((f"`{key.name}`", _allowed(key), _role(key)) for key in section.keys))
        )
    return "\n".join(lines)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:], ""])


def _allowed(key: Key) -> str:
    """Return the allowed values of a key, or its types."""
    if key.allowed is not None:
        return key.allowed.describe()
    if not key.ours:
        return ""
    names = {bool: "`True`, `False`", int: "integer", float: "number", str: "text", list: "list"}
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
