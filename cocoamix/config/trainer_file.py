"""Refuses a file of settings for another trainer, which would have no effect, and notes such options."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cocoamix.errors import UserError
from cocoamix.io.texts import read_yaml
from cocoamix.registry import plain_name

from .settings import flatten
from .shipped import locate


def refuse_other_trainers(path: str, trainer: str, section: str, trainers: Iterable[str]) -> None:
    """Refuse a file of CoOp's layout, trainers/<Trainer>/<name>.yaml, that sets nothing that the trainer reads.

    A file is accepted if it is outside that layout, sets no method's keys, or sets some that the trainer reads (KgCoOp
    reads CoOp's).

    Args:
        path: The file, as --config-file names it. It exists and holds keys.
        trainer: The trainer that --trainer names.
        section: Its node of the configuration, such as COOP.
        trainers: All known trainers.
    """
    file, name = locate(path), plain_name(trainer)
    owner = file.parent.name
    if file.parent.parent.name != "trainers" or owner == name or owner not in trainers:
        return
    found = sorted({*map(_section_of, flatten(read_yaml(file) or {}))} - {""})
    if found and section not in found:
        keys = " and ".join(f"TRAINER.{one}.*" for one in found)
        raise UserError(
            f"{path} is a configuration of {owner}: it sets {keys}, which {name} does not read. Use a file in "
            f"configs/trainers/{name}, or --trainer {owner}."
        )


def note_unread_options(options: Sequence[str], trainer: str, section: str) -> None:
    """Print a note that names the options for other trainers' sections, if there are any.

    They are not refused, because a script or `bench run --set` may give several methods the same options.

    Args:
        options: The KEY VALUE pairs of the command line.
        trainer: The trainer that --trainer names.
        section: Its node of the configuration, such as COOP.
    """
    unread = list(dict.fromkeys(key for key in options[::2] if _section_of(key) not in ("", section)))
    if unread:
        print(
            f"Note: {' and '.join(unread)} on the command line {'has' if len(unread) == 1 else 'have'} no effect: of "
            f"the methods' sections, {plain_name(trainer)} reads only TRAINER.{section}.*."
        )


def _section_of(key: str) -> str:
    """Return the method's section that a key belongs to, such as COOP; empty for other keys."""
    first, *rest = key.split(".")
    return rest[0] if first == "TRAINER" and len(rest) > 1 else ""
