"""The parser of every command line."""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn

from .errors import nearest, printable, shorten

# argparse's words for a value that is not among the choices; some versions of Python quote the choices.
_CHOICE = re.compile(r"invalid choice: '(?P<value>[^']*)' \(choose from (?P<known>.*)\)")


class Parser(argparse.ArgumentParser):
    """Tells a mistake in one sentence, as all of the package does, and says where the help is.

    It keeps the lines of a description that has several, because they show commands.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        if "\n" in (options.get("description") or ""):
            options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*arguments, **options)

    def error(self, message: str) -> NoReturn:
        """End with the status of a mistake."""
        found = _CHOICE.search(message)
        meant = nearest(found["value"], found["known"].replace("'", "").split(", ")) if found else ""
        self.exit(2, f"error: {shorten(printable(message), 400)}.{meant} See `{self.prog} --help`.\n")
