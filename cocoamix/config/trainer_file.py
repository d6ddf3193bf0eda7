"""Refuse the configuration file of another trainer, whose settings would be read by nobody."""

from __future__ import annotations

from collections.abc import Iterable

from cocoamix.errors import UserError
from cocoamix.io.texts import read_yaml
from cocoamix.registry import plain_name

from .settings import flatten
from .shipped import locate


def refuse_other_trainers(path: str, trainer: str, section: str, trainers: Iterable[str]) -> None:
    """Refuse a file of CoOp's layout, trainers/<Trainer>/<name>.yaml, that sets nothing which the trainer reads.

    A file that sets no method's keys, or some that the trainer reads, may be of any trainer: KgCoOp takes CoOp's. So
    may a file that lies elsewhere.

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
    parts = [key.split(".") for key in flatten(read_yaml(file) or {})]
    found = sorted({part[1] for part in parts if part[0] == "TRAINER" and len(part) > 2})
    if found and section not in found:
        keys = " and ".join(f"TRAINER.{one}.*" for one in found)
        raise UserError(
            f"{path} is a configuration of {owner}: it sets {keys}, which {name} does not read. Use a file of "
            f"configs/trainers/{name}, or --trainer {owner}."
        )
