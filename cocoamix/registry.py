"""Registering in Dassl's registries beside whatever is there already, or comes later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)
PREFIX = "cocoamix."


def plain_name(name: str) -> str:
    """Return a registered name without our prefix."""
    return name.removeprefix(PREFIX)


def register(registry: Any) -> Callable[[Class], Class]:
    """Return a decorator that registers a class as `cocoamix.<name>`, and as `<name>` where that is free.

    A code base that registers `<name>` itself keeps it, whether it does so before or after us.
    """

    def decorator(cls: Class) -> Class:
        name = cls.__name__
        registry.register(type(PREFIX + name, (cls,), {"__module__": cls.__module__, "__doc__": cls.__doc__}))
        if name not in registry.registered_names():
            registry.register(cls)
            _lend(registry, name)
        return cls

    return decorator


def _lend(registry: Any, name: str) -> None:
    """Let a later registration of `name` take it over, where Dassl would refuse a name that is taken.

    This replaces `register` of that one registry object. It does what it did for every name that is not lent.
    """
    lent: set[str] | None = vars(registry).get("lent_names")
    if lent is None:
        lent = registry.lent_names = set()
        registry.register = _yielding(registry.register, lent)
    lent.add(name)


def _yielding(register: Callable[..., Any], lent: set[str]) -> Callable[..., Any]:
    def yielding(obj: Any = None, force: bool = False) -> Any:
        if obj is None:  # used as @REGISTRY.register()

            def decorator(cls: Class) -> Class:
                yielding(cls, force)
                return cls

            return decorator
        force = force or obj.__name__ in lent
        lent.discard(obj.__name__)
        return register(obj, force=force)

    return yielding
