"""Registers classes in Dassl's registries next to those of other code bases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)
PREFIX = "cocoamix."


def plain_name(name: str) -> str:
    """Return a registered name without our prefix."""
    return name.removeprefix(PREFIX)


def register(registry: Any) -> Callable[[Class], Class]:
    """Return a decorator that registers a class as `cocoamix.<name>`, and as `<name>` if that is free.

    If another code base also registers `<name>`, before or after this one, `<name>` refers to the other class.
    """

    def decorator(cls: Class) -> Class:
        name = cls.__name__
        registry.register(type(PREFIX + name, (cls,), {"__module__": cls.__module__, "__doc__": cls.__doc__}))
        if name not in registry.registered_names():
            registry.register(cls)
            _make_replaceable(registry, name)
        return cls

    return decorator


def _make_replaceable(registry: Any, name: str) -> None:
    """Let a later registration replace `name`; Dassl refuses names that are taken.

    This replaces the method `register` of the registry object. Other names are registered as before.
    """
    replaceable: set[str] | None = vars(registry).get("replaceable_names")
    if replaceable is None:
        replaceable = registry.replaceable_names = set()
        registry.register = _replacing(registry.register, replaceable)
    replaceable.add(name)


def _replacing(register: Callable[..., Any], replaceable: set[str]) -> Callable[..., Any]:
    def replacing(obj: Any = None, force: bool = False) -> Any:
        if obj is None:  # used as @REGISTRY.register()

            def decorator(cls: Class) -> Class:
                replacing(cls, force)
                return cls

            return decorator
        force = force or obj.__name__ in replaceable
        replaceable.discard(obj.__name__)
        return register(obj, force=force)

    return replacing
