"""Registering in Dassl's registries beside whatever is there already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)
PREFIX = "cocoamix."


def register(registry: Any) -> Callable[[Class], Class]:
    """Return a decorator that registers a class under its name.

    Where a code base has registered that name itself, theirs stays, and ours is `cocoamix.<name>`.
    """

    def decorator(cls: Class) -> Class:
        taken = cls.__name__ in registry.registered_names()
        registry.register(type(PREFIX + cls.__name__, (cls,), {}) if taken else cls)
        return cls

    return decorator
