"""Use the trainers of this package inside CoOp's tree or one derived from it, without editing the tree.

    cocoamix plugin train.py --trainer CoCoAMix --config-file cocoamix:CoCoAMix/vit_b16_ep50.yaml ...
    cocoamix plugin --configs DIR [TRAINER ...]

`python -m cocoamix.plugin` is the same command, for scripts that start with `python`.

The first command registers our trainers, datasets and configuration keys, then runs the tree's own train.py as
`python train.py ...` does. `cocoamix:` names a configuration of this package. The second command copies the
configurations to DIR, in CoOp's layout. docs/DROP_IN.md lists what is changed in Dassl.
"""

from __future__ import annotations

import argparse
import importlib
import os
import runpy
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from .compat import uses_fallback
from .config.shipped import copy_out, locate
from .errors import UserError, run_command
from .io.failed_start import open_log, remove_log
from .parser import Parser

FLAGS = ("--config-file", "--dataset-config-file")


def name_files(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a train.py with the names of our configurations replaced by paths of files.

    Only the values of the two flags that take a configuration are changed; argparse allows abbreviations of the flags.
    A file of the tree takes precedence over one of ours with the same name.
    """
    named = list(arguments)
    for index, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if len(flag) < 3 or not any(known.startswith(flag) for known in FLAGS):
            continue
        if equals:
            named[index] = f"{flag}={_path(value)}"
        elif index + 1 < len(arguments):
            named[index + 1] = _path(arguments[index + 1])
    return named


def _path(given: str) -> str:
    """Return the path of our configuration with that name; anything else is returned unchanged."""
    found = locate(given)
    return given if found == Path(given) else str(found)


def run_script(script: str, arguments: Sequence[str]) -> None:
    """Run a train.py in this process, after registering our trainers and datasets."""
    path = Path(script)
    if not path.is_file():
        raise UserError(f"There is no script {script} in {Path.cwd()}. Start in the folder of the tree's train.py.")
    if uses_fallback():
        raise UserError(
            f"{script} belongs to a code base that needs Dassl, which is not installed here: install it as its README "
            "says, or use the train.py of this project."
        )
    named = name_files(arguments)
    _search_first(path.resolve().parent)
    # If the tree later registers one of our names, the name refers to the tree's class: see cocoamix.registry.
    for package in ("cocoamix.trainers", "cocoamix.datasets"):
        importlib.import_module(package)
    sys.argv = [script, *named]
    before = open_log()
    try:
        runpy.run_path(script, run_name="__main__")
    except Exception as error:
        # DePT's train.py replaces every exception by a plain Exception.
        cause = error.__context__ if type(error) is Exception else error
        if not isinstance(cause, UserError):
            raise
        remove_log(cause, before)
        raise cause from None


def _search_first(folder: Path) -> None:
    """Search the script's folder first for modules such as `trainers` and `clip`, as Python does for a script."""
    if sys.path and sys.path[0] in ("", os.getcwd()):  # put there by `python -m`
        sys.path[0] = str(folder)
    else:
        sys.path.insert(0, str(folder))


def write_configurations(target: str, trainers: Sequence[str]) -> None:
    """Copy the configurations to a folder and print a summary."""
    written, kept = copy_out(Path(target), trainers)
    for file in kept:
        print(f"{file} exists and differs; it is not replaced")
    print(f"{len(written)} configuration(s) written below {target}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for a command line without a script."""
    parser.add_argument(
        "--configs",
        nargs="+",
        metavar=("DIR", "TRAINER"),
        required=True,
        help="copy the configurations to DIR: all of them, or those of the named trainers",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run a script or copy configurations; return the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and not arguments[0].startswith("-"):
        return run_command(partial(run_script, arguments[0], arguments[1:]), "Stopped.", foreign=True)
    usage = "%(prog)s train.py ...\n       %(prog)s --configs DIR [TRAINER ...]"
    parser = Parser(prog="cocoamix plugin", usage=usage, description=__doc__)
    add_arguments(parser)
    target, *trainers = parser.parse_args(arguments).configs
    return run_command(partial(write_configurations, target, trainers), "Stopped.")


if __name__ == "__main__":
    sys.exit(main())
