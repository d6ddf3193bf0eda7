"""Merges configuration files, flags and options. Every error is one sentence."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from yacs.config import CfgNode

from cocoamix.errors import UserError, brief, nearest, shorten
from cocoamix.io.texts import read_yaml

from .allowed import kind
from .roles import find
from .settings import flatten, literal
from .shipped import locate


def merge_file(cfg: CfgNode, path: str) -> None:
    """Merge a YAML file. Errors name unknown keys and values of the wrong type."""
    file = locate(path)
    if not os.path.isfile(file):  # unlike Path's, it treats a name that is too long as missing
        siblings = [str(other) for other in file.parent.glob("*.yaml")] if os.path.isdir(file.parent) else []
        raise UserError(f"There is no configuration file {shorten(path)}.{nearest(path, siblings)}")
    content = read_yaml(file) or {}
    if not isinstance(content, dict):
        raise UserError(f"{path} is not a configuration: its top level is {kind(content)}, not keys.")
    for key, value in flatten(content).items():
        _set(cfg, key, value, path)


def merge_recorded(cfg: CfgNode, recorded: Mapping[str, Any], origin: str) -> None:
    """Merge the settings that a run of any version recorded, as nested or dotted keys. Unknown keys are skipped."""
    known = flatten(cfg)
    for key, value in flatten(recorded).items():
        if key in known:
            _set(cfg, key, value, origin)


def merge_options(cfg: CfgNode, options: Sequence[str], origins: Mapping[str, str] | None = None) -> None:
    """Merge trailing `KEY VALUE` pairs of a command line.

    Args:
        cfg: The configuration.
        options: The pairs.
        origins: Where keys were really set, for messages, if someone else wrote the command line.
    """
    flags = [option for option in options if option.startswith("--")]
    if flags:
        raise UserError(f"{flags[0]} comes after KEY VALUE pairs, where flags are not read. Put it before them.")
    if len(options) % 2:
        raise UserError(f"The options at the end are KEY VALUE pairs, but {brief(options[-1])} has no value.")
    for key, text in zip(options[::2], options[1::2], strict=True):
        value = literal(text)
        if isinstance(value, (dict, set)):
            value = text  # the template "{}" is a string: no key takes a dict or a set
        _set(cfg, key, value, (origins or {}).get(key, "the command line"))


def merge_settings(cfg: CfgNode, settings: Mapping[str, Any], origins: Mapping[str, str] | None = None) -> None:
    """Merge typed values by dotted key, as plans have them. `origins` says where keys were set, for messages."""
    for key, value in settings.items():
        _set(cfg, key, value, (origins or {}).get(key, "the command line"))


def merge_value(cfg: CfgNode, key: str, value: Any) -> None:
    """Merge the value of a named flag."""
    _set(cfg, key, value, "the command line")


def _set(cfg: CfgNode, key: str, value: Any, origin: str) -> None:
    """Set an existing key to a value, converted to the type of the key."""
    *path, leaf = key.split(".")
    node = cfg
    for name in path:
        if name not in node or not isinstance(node[name], CfgNode):
            raise _unknown(cfg, key, origin)
        node = node[name]
    if leaf in node and isinstance(node[leaf], CfgNode):
        if value is None:  # an empty section of a file
            return
        raise UserError(f"{origin} sets {key} to {brief(value)}, but {key} is a section: set one of its keys.")
    if leaf not in node:
        raise _unknown(cfg, key, origin)
    node[leaf] = _coerce(key, node[leaf], value, origin)


def _unknown(cfg: CfgNode, key: str, origin: str) -> UserError:
    known = list(flatten(cfg))
    return UserError(f"{origin} sets {shorten(key)}, which is not a configuration key.{nearest(key, known)}")


def _coerce(key: str, default: Any, value: Any, origin: str) -> Any:
    """Convert `value` to the type of `default`, as yacs does, or to another type that the key allows."""
    declared = find(key)
    if declared.ours:
        default = declared.default  # an earlier file may have set a value of another type that the key takes
    if isinstance(value, str) and not isinstance(default, str):
        value = literal(value)  # YAML leaves "(224, 224)" and "1e-5" as text
    if isinstance(value, tuple) and list in declared.also:
        value = list(value)
    if type(value) in declared.also:
        return value
    if isinstance(default, (list, tuple)) and isinstance(value, (list, tuple)):
        return type(default)(value)
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError as error:
            raise UserError(f"{origin} sets {key} to {brief(value)}, which is too large.") from error
    if type(value) is not type(default):
        raise UserError(
            f"{origin} sets {key} to {brief(value)}, which is {kind(value)}; {kind(default)} like {brief(default)} is "
            "expected."
        )
    return value
