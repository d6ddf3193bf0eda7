"""`cocoamix data`: the command line of the datasets."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from cocoamix.errors import UserError, run_command
from cocoamix.io.paths import expand_home
from cocoamix.parser import Parser

from . import __doc__ as about
from .building import resolve_name, source_of
from .download import download
from .parts import list_datasets

PAIRS = "KEY VALUE pairs at the end override the configuration, as with train.py."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands and their arguments."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    listing = commands.add_parser("list", help="list the datasets; with --root, also which of them are there")
    listing.add_argument("--root", type=Path, help="folder that holds the datasets' folders")

    checking = commands.add_parser(
        "check",
        help="show which parts of a dataset are there, and how to get the rest",
        description=f"Check a dataset. Exit status: 0 if ready for training, 1 if not, 2 for a usage error. {PAIRS}",
    )
    checking.add_argument("--fast", action="store_true", help="do not open the images")
    checking.add_argument("--all", action="store_true", help="list every class and every unreadable image")
    checking.add_argument(
        "--write-names", type=Path, metavar="FILE", help="write the class name of each folder, for DATASET.CLASSNAMES"
    )

    loading = commands.add_parser("download", help="download the missing parts of a dataset, after asking")
    loading.add_argument("--yes", action="store_true", help="do not ask before downloading")

    writing = commands.add_parser(
        "export", help="write the images of a few-shot draw to a JSON file, with hashes", description=PAIRS
    )
    writing.add_argument("--shots", type=int, required=True, help="images per class")
    writing.add_argument("--seed", type=int, required=True, help="seed of the draw")
    writing.add_argument("--out", type=Path, required=True, help="JSON file to write")

    reading = commands.add_parser(
        "import", help="check an exported draw against the images here, and use it", description=PAIRS
    )
    reading.add_argument("file", type=Path, help="JSON file written by `cocoamix data export`")
    reading.add_argument("--force", action="store_true", help="replace an existing draw with the same shots and seed")
    for command in (checking, loading, writing):
        command.add_argument(
            "name", help="a dataset such as EuroSAT; folder or csv for your own images; or a file of configs/datasets"
        )
    for command in (checking, loading, writing, reading):
        command.add_argument("--root", type=Path, required=True, help="folder that holds the datasets' folders")


def run(chosen: argparse.Namespace, options: Sequence[str]) -> int:
    """Run the sub-command and return its exit status.

    Args:
        chosen: The parsed arguments.
        options: KEY VALUE pairs that change the configuration.
    """
    root = expand_home(chosen.root) if chosen.root else None
    if chosen.command == "list":
        list_datasets(root)
        return 0
    assert root is not None
    if chosen.command == "import":
        from .manifest import import_manifest

        return 0 if import_manifest(chosen.file, root, options, chosen.force) else 1
    name = resolve_name(chosen.name)
    if chosen.command == "check":
        from .check import check  # imports torch

        names_file = expand_home(chosen.write_names) if chosen.write_names else None
        return 0 if check(name, root, options, chosen.fast, chosen.all, names_file) else 1
    if chosen.command == "export":
        from .manifest import export_manifest

        export_manifest(name, root, chosen.shots, chosen.seed, chosen.out, options)
        return 0
    source = source_of(name)
    if source is None:
        raise UserError(f"{name} reads your own images; there is nothing to download. See docs/OWN_IMAGES.md.")
    return 0 if download(source, root, chosen.yes) else 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = Parser(prog="cocoamix data", description=about)
    add_arguments(parser)
    chosen, options = parser.parse_known_args(argv)
    flags = [option for option in options if option.startswith("--")]
    if flags or (options and chosen.command in ("list", "download")):
        parser.error(f"unrecognized arguments: {' '.join(flags or options)}")
    return run_command(partial(run, chosen, options), "Stopped. The same command resumes.")
