"""The command `cocoamix`: find the sub-command and pass it the rest of the command line.

A sub-command is a module with `add_arguments(parser)` and `main(argv)`, which returns the exit status. It is imported
only when it is named, so that help and typos do not wait for torch.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from functools import partial

from . import __version__
from .errors import UserError, brief, known_names, run_command

# Name: module, description.
COMMANDS = {
    "train": ("cocoamix.train_command", "train and evaluate one model, with CoOp's flags"),
    "predict": ("cocoamix.predict", "label images with a trained model"),
    "export": ("cocoamix.export", "write a trained model as safetensors or ONNX"),
    "bench": ("cocoamix.experiments.bench", "run a benchmark plan (methods x datasets x seeds) and print its tables"),
    "report": ("cocoamix.experiments.report", "make tables and figures from a folder of results"),
    "figures": ("cocoamix.experiments.figures", "draw the figures of the paper and of this project"),
    "data": ("cocoamix.data.command", "list, check and download datasets; export and import few-shot draws"),
    "features": ("cocoamix.features.command", "inspect or clear the store of image features"),
    "shapes": ("cocoamix.shapes.command", "show the synthetic datasets, or write them as PNG files"),
    "plugin": ("cocoamix.plugin", "use these trainers inside a CoOp tree, or copy the configurations"),
}


def describe() -> str:
    """Return the help on all commands."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {about}" for name, (_, about) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: cocoamix COMMAND ...",
            "",
            *lines,
            "",
            "`cocoamix COMMAND --help` describes a command; `cocoamix --version` prints the version.",
        ]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return run_command(partial(_dispatch, arguments), "Stopped.")


def _dispatch(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(describe())
        return 0
    if arguments[0] == "--version":
        print(f"cocoamix {__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        raise UserError(f"There is no command {brief(name)}.{known_names(name, COMMANDS)}")
    status: int = importlib.import_module(COMMANDS[name][0]).main(rest)
    return status
