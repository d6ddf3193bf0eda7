"""The kinds of values that a key allows. Each refuses other values with one sentence, and describes itself."""

from __future__ import annotations

import datetime
import math
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cocoamix.errors import UserError, brief, check_choice


class Allowed(Protocol):
    """The values that a key allows, beyond the type of its default."""

    def check(self, name: str, value: Any) -> None:
        """Raise UserError if the key `name` does not allow a value."""

    def describe(self) -> str:
        """Return the allowed values in Markdown, for docs/KEYS.md."""


@dataclass(frozen=True)
class OneOf:
    """One of several strings or numbers."""

    values: tuple[Any, ...]

    def check(self, name: str, value: Any) -> None:
        """Raise UserError for a value that is not allowed."""
        check_choice(name, value, self.values)

    def describe(self) -> str:
        """Return the allowed values in Markdown."""
        return ", ".join(show(value) for value in self.values)


@dataclass(frozen=True)
class Range:
    """A number between two bounds, both included."""

    least: float
    most: float = math.inf

    def check(self, name: str, value: Any) -> None:
        """Raise UserError for a value that is not allowed."""
        if not (self.least <= value <= self.most and math.isfinite(value)):
            limit = "" if self.most == math.inf else f" and at most {_digits(self.most)}"
            raise UserError(f"{name} is {brief(value)}; it must be at least {_digits(self.least)}{limit}.")

    def describe(self) -> str:
        """Return the allowed values in Markdown."""
        least, most = _digits(self.least), _digits(self.most)
        if self.least == self.most:
            return least
        return f"at least {least}" if self.most == math.inf else f"{least} to {most}"


@dataclass(frozen=True)
class AutoOr:
    """`auto`, or a number.

    Attributes:
        numbers: The allowed numbers.
        unit: What the number counts.
    """

    numbers: Range
    unit: str

    def check(self, name: str, value: Any) -> None:
        """Raise UserError for a value that is not allowed."""
        if isinstance(value, str):
            check_choice(name, value, ("auto", f"a number of {self.unit}"))
        else:
            self.numbers.check(name, value)

    def describe(self) -> str:
        """Return the allowed values in Markdown."""
        return f"`auto`, or a number, {self.numbers.describe()}"


@dataclass(frozen=True)
class Numbers:
    """A list of numbers, none below 0.

    Attributes:
        count: Length of the list.
        ascending: Whether each number must be at least as large as the one before.
        divisor: Whether images are divided by the numbers, so that none may be 0.
    """

    count: int
    ascending: bool = False
    divisor: bool = False

    def check(self, name: str, value: Any) -> None:
        """Raise UserError for a value that is not allowed."""
        if len(value) != self.count or not all(isinstance(one, (int, float)) and 0 <= one < math.inf for one in value):
            raise UserError(f"{name} is {brief(value)}; it must be a list of {self.count} non-negative numbers.")
        if self.ascending and list(value) != sorted(value):
            raise UserError(f"{name} is {brief(value)}; the smaller number must come first.")
        if self.divisor and 0 in value:
            raise UserError(f"{name} is {brief(value)}; images cannot be divided by 0.")

    def describe(self) -> str:
        """Return the allowed values in Markdown."""
        return f"{self.count} numbers, " + ("above 0" if self.divisor else "at least 0")


@dataclass(frozen=True)
class Strings:
    """A list of strings."""

    def check(self, name: str, value: Any) -> None:
        """Raise UserError for a value that is not allowed."""
        for one in value:
            if not isinstance(one, str):
                raise UserError(f"{name} holds {brief(one)}, which is {kind(one)}; strings are expected.")

    def describe(self) -> str:
        """Return the allowed values in Markdown."""
        return "list of strings"


@dataclass(frozen=True)
class Template:
    """One prompt template, or several."""

    def check(self, name: str, value: Any) -> None:
        """Raise UserError for a value that is not allowed."""
        given: Sequence[Any] = [value] if isinstance(value, str) else value
        if not given:
            raise UserError(f"{name} is empty. Give a template, a list of templates, or `dataset`.")
        for template in given:
            if template != "dataset" and not _has_one_place(template):
                raise UserError(
                    f"{name} holds {brief(template)}, which needs one {{}} for the class name and no other braces."
                )

    def describe(self) -> str:
        """Return the allowed values in Markdown."""
        return "`dataset`, a string with one `{}`, or a list of them"


def _has_one_place(template: object) -> bool:
    """Return whether a string has exactly one placeholder `{}` for `str.format`, and no other."""
    if not isinstance(template, str):
        return False
    try:
        places = [place for _, *place in string.Formatter().parse(template) if place[0] is not None]
    except ValueError:
        return False
    return places == [["", "", None]]


@dataclass(frozen=True)
class Only:
    """The only allowed value of a key of another code base, which is declared so that its configurations load.

    Attributes:
        value: The value.
        because: Why other values are refused, and what to do instead.
    """

    value: Any
    because: str

    def check(self, name: str, value: Any) -> None:
        """Raise UserError for a value that is not allowed."""
        if value != self.value:
            raise UserError(f"{name} is {brief(value)}, but {self.because}")

    def describe(self) -> str:
        """Return the allowed values in Markdown."""
        return f"only {show(self.value)}"


def _digits(number: float) -> str:
    """Return a number without a decimal point if it is whole."""
    return str(int(number)) if float(number).is_integer() else str(number)


def show(value: Any) -> str:
    """Return a value as Markdown, written as in a configuration."""
    return '`""`' if value == "" else f"`{value}`"


def kind(value: Any) -> str:
    """Name the type of a value in plain words."""
    if value is None:
        return "empty"
    kinds = {
        bool: "a boolean",
        int: "a whole number",
        float: "a number",
        str: "a string",
        list: "a list",
        tuple: "a list",
    }
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, datetime.date):  # YAML reads 2024-01-01 as one
        return "a date"
    return kinds.get(type(value), "a set of keys")
