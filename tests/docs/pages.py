"""The pages of the documentation, and the commands in their ```bash blocks."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md", "cocoamix/assets/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]

_BLOCK = re.compile(r"^```bash(?P<mark>[^\n]*)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r'title="(?:needs|takes) [^"]+"')
_OPERATORS = {"&&", "||", ";", "|"}
_REDIRECTIONS = {">", "<", ">>"}
_ASSIGNMENT = re.compile(r"[A-Z_]+=")


@dataclass(frozen=True)
class Command:
    """A command of a page, without what precedes and follows it on its line."""

    page: str
    text: str  # the line as written, for messages and for the shell
    settings: dict[str, str]  # NAME=value before it, and exported before it in the block
    words: list[str]
    mark: str  # why it cannot be run from a clone; nothing if it can

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def commands_of(page: Path) -> list[Command]:
    """Return the commands of a page's blocks, in their order."""
    found = []
    for block in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        mark = block["mark"].strip()
        assert not mark or _MARK.fullmatch(mark), f"{name_of(page)}: {mark} is not a mark that CONTRIBUTING.md names"
        exported: dict[str, str] = {}
        for line in block["text"].replace("\\\n", " ").splitlines():
            for settings, words in split(line):
                if words[:1] == ["export"]:
                    exported |= dict(word.split("=", 1) for word in words[1:])
                needs = mark or ("needs data" if has_placeholder(words, {**exported, **settings}) else "")
                found.append(Command(name_of(page), line, {**exported, **settings}, words, needs))
    return found


def split(line: str) -> list[tuple[dict[str, str], list[str]]]:
    """Return the commands of a line, each with the variables that are set for it."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split = True
    parts: list[list[str]] = [[]]
    words = iter(lexer)
    for word in words:
        if word in _REDIRECTIONS:
            next(words)
        elif word in _OPERATORS:
            parts.append([])
        else:
            parts[-1].append(word)
    found = []
    for part in filter(None, parts):
        count = next((n for n, word in enumerate(part) if not _ASSIGNMENT.match(word)), len(part))
        found.append((dict(word.split("=", 1) for word in part[:count]), part[count:]))
    return found


def has_placeholder(words: list[str], settings: dict[str, str]) -> bool:
    """Return whether a command has a placeholder: $DATA, /path/to/..., or a word in capitals."""
    text = " ".join([*words, *settings.values()])
    if "$DATA" in text or "/path/to" in text or "..." in words:
        return True
    return any(re.fullmatch(r"\[?[A-Z]{3,}\]?", word) for word in words)
