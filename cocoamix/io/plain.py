"""Converts dataclasses to JSON values and back. Reading checks each value against the type of its field."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

# The name of each type, for messages and documents.
NAMES: dict[Any, str] = {str: "a string", bool: "true or false", int: "an integer", float: "a number"}


class MismatchError(ValueError):
    """A value does not fit its field. The message follows the name of a file."""


def to_plain(value: Any) -> Any:
    """Return a dataclass as dicts and lists, without fields that are None by default and still None."""
    if is_dataclass(value) and not isinstance(value, type):
        pairs = [(one, getattr(value, one.name)) for one in fields(value)]
        return {one.name: to_plain(item) for one, item in pairs if item is not None or one.default is not None}
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    return [to_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def read_fields(kind: type[Any], node: Any, where: str = "") -> dict[str, Any]:
    """Return the fields of a dataclass from a JSON object, after checking their types.

    Unknown keys are ignored, and null means the default.

    Args:
        kind: The dataclass.
        node: The object.
        where: Place of the object in its file, for messages.
    """
    whose = f"its {where}" if where else "it"
    if not isinstance(node, Mapping):
        raise MismatchError(f"{whose} is not an object")
    hints = _hints(kind)  # type: ignore[arg-type]  # to mypy a class is not hashable
    found: dict[str, Any] = {}
    for one in fields(kind):
        needed = one.default is MISSING and one.default_factory is MISSING
        if one.name not in node and needed:
            raise MismatchError(f"{whose} has no {one.name!r}")
        if needed or node.get(one.name) is not None:
            place = f"{where}.{one.name}" if where else one.name
            found[one.name] = _read(hints[one.name], node[one.name], place)
    return found


def split_optional(hint: Any) -> tuple[Any, bool]:
    """Return a type without `| None`, and whether it had that."""
    if get_origin(hint) not in (Union, types.UnionType):
        return hint, False
    (other,) = (one for one in get_args(hint) if one is not types.NoneType)
    return other, True


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)


def _read(hint: Any, value: Any, where: str) -> Any:
    hint, optional = split_optional(hint)
    if hint is Any or (optional and value is None):
        return value
    if isinstance(hint, type) and is_dataclass(hint):
        return hint(**read_fields(hint, value, where))
    if get_origin(hint) is tuple:
        if not isinstance(value, (list, tuple)):
            raise MismatchError(f"its {where} is not a list")
        return tuple(_read(get_args(hint)[0], item, f"{where}[{number}]") for number, item in enumerate(value))
    if get_origin(hint) is Mapping:
        if not isinstance(value, Mapping):
            raise MismatchError(f"its {where} is not an object")
        return {key: _read(get_args(hint)[1], item, f"{where}.{key}") for key, item in value.items()}
    return _read_scalar(hint, value, where)


def _read_scalar(kind: type[Any], value: Any, where: str) -> Any:
    fits = isinstance(value, (int, float) if kind is float else kind)
    if isinstance(value, bool) and kind is not bool:  # in Python a boolean is an integer
        fits = False
    try:
        if fits:
            return kind(value)
    except OverflowError:  # an integer of hundreds of digits
        pass
    raise MismatchError(f"its {where} is not {NAMES[kind]}")
