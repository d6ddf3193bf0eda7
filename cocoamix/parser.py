"""The argument parser of all commands."""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn

from .errors import nearest, printable, shorten

# argparse's message for an invalid choice; some versions of Python quote the choices.
_CHOICE = re.compile(r"invalid choice: '(?P<value>[^']*)' \(choose from (?P<known>.*)\)")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence, with a suggestion and a pointer to the help.

    The lines of a multi-line description are kept, because they show commands.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        if "\n" in (options.get("description") or ""):
            options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*arguments, **options)

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with status 2."""
        found = _CHOICE.search(message)
        meant = nearest(found["value"], found["known"].replace("'", "").split(", ")) if found else ""
        self.exit(2, f"error: {shorten(printable(message), 400)}.{meant} See `{self.prog} --help`.\n")
