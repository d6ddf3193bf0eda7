"""Our trainers inside somebody's CoOp or KgCoOp tree, without an edit of it.

    python -m cocoamix.plugin train.py --trainer CoCoAMix --config-file cocoamix:CoCoAMix/vit_b16_ep50.yaml ...
    python -m cocoamix.plugin --configs DIR [TRAINER ...]

The first runs that tree's own train.py as `python train.py ...` would, after registering our trainers, our datasets and
the defaults of our configuration keys. `cocoamix:` names a configuration inside the package. The second copies the
configurations to DIR, in CoOp's layout. docs/DROP_IN.md tells what is changed in Dassl, and that nothing else is.
"""

from __future__ import annotations

import argparse
import importlib
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from .config.shipped import PREFIX, copy_out, locate
from .errors import UserError, report

FLAGS = ("--config-file", "--dataset-config-file")


def name_files(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a train.py with `cocoamix:` names replaced by paths of files.

    Only the two flags that take a configuration are looked at, so that any other value may begin as it likes. They may
    be shortened, as argparse allows.
    """
    named = list(arguments)
    for index, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if len(flag) < 3 or not any(known.startswith(flag) for known in FLAGS):
            continue
        if equals and value.startswith(PREFIX):
            named[index] = f"{flag}={locate(value)}"
        elif not equals and index + 1 < len(arguments) and arguments[index + 1].startswith(PREFIX):
            named[index + 1] = str(locate(arguments[index + 1]))
    return named


def run_script(script: str, arguments: Sequence[str]) -> None:
    """Run a train.py in this process, with what is ours registered first."""
    path = Path(script)
    if not path.is_file():
        raise UserError(f"There is no script {script} in {Path.cwd()}. Start in the folder of the tree's train.py.")
    named = name_files(arguments)
    _search_first(path.resolve().parent)
    # A name that the tree has, too, stays the tree's, although it comes later: see cocoamix.registry.
    for package in ("cocoamix.trainers", "cocoamix.datasets"):
        importlib.import_module(package)
    sys.argv = [script, *named]
    runpy.run_path(script, run_name="__main__")


def _search_first(folder: Path) -> None:
    """Look for modules in the script's folder first, as Python does for a script: its `trainers`, its `clip`."""
    if sys.path and sys.path[0] in ("", os.getcwd()):  # put there by `python -m`
        sys.path[0] = str(folder)
    else:
        sys.path.insert(0, str(folder))


def write_configurations(target: str, trainers: Sequence[str]) -> None:
    """Copy the configurations to a folder and say which were written."""
    written, kept = copy_out(Path(target), trainers)
    for file in kept:
        print(f"{file} is there and differs; it stays as it is")
    print(f"{len(written)} configuration(s) written below {target}")


def parse_options(argv: Sequence[str]) -> argparse.Namespace:
    """Read the plugin's own options, for a command line without a script."""
    parser = argparse.ArgumentParser(
        prog="python -m cocoamix.plugin",
        usage="%(prog)s train.py ...\n       %(prog)s --configs DIR [TRAINER ...]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--configs",
        nargs="+",
        metavar=("DIR", "TRAINER"),
        required=True,
        help="copy the configurations to DIR; of the named trainers only, if any is named",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a script or copy configurations; a mistake of the user gives one sentence and exit status 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments and not arguments[0].startswith("-"):
            run_script(arguments[0], arguments[1:])
        else:
            target, *trainers = parse_options(arguments).configs
            write_configurations(target, trainers)
    except UserError as error:
        return report(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
