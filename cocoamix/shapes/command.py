"""`cocoamix shapes`: the command line of the synthetic images."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PIL import Image

from cocoamix.errors import UserError, run_command
from cocoamix.parser import Parser

from . import __doc__ as about
from .drawing import draw
from .sets import DATASETS, spread, write
from .sheets import DARK, LIGHT, Look, class_sheet, domain_sheet
from .world import DOMAINS, compositions


def speed(count: int = 600) -> None:
    """Print how many images of each domain one core draws per second."""
    chosen = spread(compositions(), 60, seed=0)
    for domain in DOMAINS:
        start = time.process_time()
        for item in range(count):
            draw(chosen[item % len(chosen)], domain, seed=0, item=item)
        print(f"{domain:10} {count / (time.process_time() - start):6.0f} images a second")


def save_sheets(file: Path, dataset: str | None) -> None:
    """Draw a sheet of every domain, or of the classes of a dataset, for light pages (`file`) and for dark ones."""
    _save_sheet(file, dataset, LIGHT)
    _save_sheet(file.with_name(f"{file.stem}-dark{file.suffix}"), dataset, DARK)


def _save_sheet(file: Path, dataset: str | None, look: Look) -> None:
    image = class_sheet(dataset, look=look) if dataset else domain_sheet(look=look)
    if image.mode == "RGBA" and file.suffix.lower() != ".png":  # other formats may lack transparency
        solid = Image.new("RGB", image.size, "#1c2733")
        solid.paste(image, mask=image)
        image = solid
    try:
        image.save(file)
    except ValueError as error:  # Pillow chooses the format by the ending
        raise UserError(f"{file} has an unknown image format. Use the ending .png.") from error


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands and their arguments."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    sheet = commands.add_parser("sheet", help="draw a contact sheet of every domain, or of the classes of a dataset")
    sheet.add_argument("file", type=Path, help="image to write, such as sheet.png; sheet-dark.png is for dark pages")
    sheet.add_argument("--dataset", choices=DATASETS, help="draw the classes of this dataset instead")
    writer = commands.add_parser("write", help="write the datasets as PNG files in CoOp's layout")
    writer.add_argument("folder", type=Path, help="data folder to write to")
    writer.add_argument("--dataset", choices=DATASETS, action="append", help="only this dataset; may be repeated")
    commands.add_parser("speed", help="time the drawing of each domain")


def run(chosen: argparse.Namespace) -> None:
    """Run the command."""
    if chosen.command == "speed":
        speed()
    elif chosen.command == "sheet":
        save_sheets(chosen.file, chosen.dataset)
    else:
        write(chosen.folder, chosen.dataset or tuple(DATASETS))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = Parser(prog="cocoamix shapes", description=about)
    add_arguments(parser)
    return run_command(partial(run, parser.parse_args(argv)), "Stopped.")
