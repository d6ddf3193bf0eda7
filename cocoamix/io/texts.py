"""Reads text, JSON and YAML files. Every problem with a file is reported in one sentence."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from cocoamix.errors import UserError
from cocoamix.refusals import shorten

_MOST_VALUES = 100_000  # in a YAML file, where a few aliases can expand to billions
_DEEPEST = 50


class UnreadableError(UserError):
    """A file that cannot be read.

    Attributes:
        reason: Why; it continues a sentence that starts with the file name.
    """

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        super().__init__(f"{shorten(os.fspath(path), 300)} {reason}.")
        self.reason = reason


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a regular file. Others are an error: reading a named pipe would wait for a writer."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise UnreadableError(path, "is not a file")
        return Path(path).read_bytes()
    except FileNotFoundError as error:
        raise UnreadableError(path, "does not exist") from error
    except (OSError, ValueError) as error:  # a ValueError means an invalid path
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UnreadableError(path, f"cannot be read: {reason}") from error


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a UTF-8 file, without a byte order mark."""
    raw = read_bytes(path)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        kind = " (it looks like UTF-16)" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        line = raw[: error.start].count(b"\n") + 1
        raise UnreadableError(path, f"is not UTF-8{kind}: see line {line}. Save it as UTF-8") from error


def read_json(path: str | os.PathLike[str]) -> Any:
    """Return the content of a JSON file."""
    text = read_text(path)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UnreadableError(path, f"is not valid JSON: {error}") from error
    except RecursionError as error:
        raise UnreadableError(path, "is nested too deeply") from error
    except ValueError as error:
        raise UnreadableError(path, "holds a number with too many digits") from error


def read_yaml(path: str | os.PathLike[str]) -> Any:
    """Return the content of a YAML file."""
    import yaml  # here, because the report does not need it

    text = read_text(path)
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise UnreadableError(path, f"is not valid YAML: {problem}{where}") from error
    except RecursionError as error:
        raise UnreadableError(path, "is nested too deeply") from error
    except Exception as error:  # invalid dates and numbers make PyYAML fail in many ways
        raise UnreadableError(path, f"is not valid YAML: it has an invalid date or number ({error})") from error
    _refuse_excess(content, path)
    return content


def _refuse_excess(content: Any, path: str | os.PathLike[str]) -> None:
    """Refuse too many or too deeply nested values: aliases can refer to themselves or expand to billions."""
    level = [content]
    for _ in range(_DEEPEST):
        inner: list[Any] = []
        for one in level:
            if isinstance(one, (dict, list)):
                inner += one.values() if isinstance(one, dict) else one
            if len(inner) > _MOST_VALUES:
                raise UnreadableError(path, "holds far more values than a configuration has")
        if not inner:
            return
        level = inner
    raise UnreadableError(path, "is nested too deeply")
