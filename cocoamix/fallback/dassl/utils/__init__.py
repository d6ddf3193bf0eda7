"""A registry of classes by name."""

from __future__ import annotations

from functools import partial
from typing import Any


class Registry:
    """Maps a class's own name to the class. Use `@REGISTRY.register()`, or `REGISTRY.register(Class)`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._obj_map: dict[str, Any] = {}

    def register(self, obj: Any = None, force: bool = False) -> Any:
        """Add `obj` under its name; `force` replaces an existing one."""
        if obj is None:
            return partial(self.register, force=force)
        name = obj.__name__
        if name in self._obj_map and not force:
            home = self._obj_map[name].__module__
            raise KeyError(f"{self._name} registry: {name} is already registered, from module {home}")
        self._obj_map[name] = obj
        return obj

    def get(self, name: str) -> Any:
        """Return the class with a name."""
        if name not in self._obj_map:
            raise KeyError(f"{self._name} registry: there is no {name!r}")
        return self._obj_map[name]

    def registered_names(self) -> list[str]:
        """Return all names."""
        return list(self._obj_map)
