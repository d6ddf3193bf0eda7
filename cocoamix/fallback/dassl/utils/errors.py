"""User errors that are also the built-in exceptions that Dassl's callers expect."""

from __future__ import annotations

from cocoamix.errors import UserError


class UnknownNameError(UserError, ValueError):
    """A name or value that is not among the allowed ones."""


class MissingFileError(UserError, FileNotFoundError):
    """A requested file does not exist."""


class NonFiniteLossError(UserError, FloatingPointError):
    """The training loss is infinite or not a number."""
