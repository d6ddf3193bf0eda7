"""The command line of the drawn images."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from . import __doc__ as about
from .drawing import draw
from .sets import DATASETS, spread, write
from .sheets import class_sheet, domain_sheet
from .world import DOMAINS, compositions


def speed(count: int = 600) -> None:
    """Print how many images of each domain one core draws in a second."""
    chosen = spread(compositions(), 60, seed=0)
    for domain in DOMAINS:
        start = time.process_time()
        for item in range(count):
            draw(chosen[item % len(chosen)], domain, seed=0, item=item)
        print(f"{domain:10} {count / (time.process_time() - start):6.0f} images a second")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m cocoamix.shapes", description=(about or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    sheet = commands.add_parser("sheet", help="draw a contact sheet of every domain, or of the classes of a dataset")
    sheet.add_argument("file", type=Path)
    sheet.add_argument("--dataset", choices=DATASETS, help="draw the classes of this dataset instead")
    writer = commands.add_parser("write", help="write the datasets as PNG files in CoOp's layout")
    writer.add_argument("folder", type=Path)
    writer.add_argument("--dataset", choices=DATASETS, action="append", help="only this one; may be repeated")
    commands.add_parser("speed", help="time the drawing of each domain")
    chosen = parser.parse_args(arguments)
    if chosen.command == "speed":
        speed()
    elif chosen.command == "sheet":
        image = class_sheet(chosen.dataset) if chosen.dataset else domain_sheet()
        image.save(chosen.file)
    else:
        write(chosen.folder, chosen.dataset or tuple(DATASETS))


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError) as error:  # a folder that is not there, an unknown kind of image file
        sys.exit(f"error: {error}")
