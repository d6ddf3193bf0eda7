"""Print mean and deviation over seeds from logs, with CoOp's arguments. `cocoamix report` offers more.

Differences from CoOp's parse_test_res.py: "Finished training" counts like "Finish training"; log.txt-<time> is read
too, and the newest log with a result counts; a folder without a result is reported and left out.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from cocoamix.errors import UserError, printable, run_command
from cocoamix.experiments.logs import FINISHED, RESULT, list_logs
from cocoamix.io.texts import UnreadableError, read_bytes
from cocoamix.parser import Parser


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse CoOp's arguments."""
    parser = Parser(description="Mean and deviation over the seeds of an experiment, from their logs")
    parser.add_argument("directory", help="folder whose sub-folders are seeds")
    parser.add_argument("--ci95", action="store_true", help="95%% confidence interval instead of the deviation")
    parser.add_argument("--test-log", action="store_true", help="logs of evaluations (--eval-only)")
    parser.add_argument(
        "--multi-exp", action="store_true", help="sub-folders are experiments, whose sub-folders are seeds"
    )
    parser.add_argument("--keyword", default="accuracy", help="which result: accuracy, error, macro_f1")
    return parser.parse_args(argv)


def read_last(path: Path, keyword: str, test_log: bool) -> float | None:
    """Return the last value of a result in a log, after the line that marks the end of training or the results."""
    content = read_bytes(path)
    mark = (RESULT if test_log else FINISHED).search(content)
    if mark is None:
        return None
    values = re.findall(rb"\* " + re.escape(keyword.encode()) + rb": ([\.\deE+-]+)%", content[mark.end() :])
    return float(values[-1]) if values else None


def read_seed(folder: Path, args: argparse.Namespace) -> float | None:
    """Print and return the result of one seed, from its newest log that has one."""
    for path in reversed(list_logs(folder, os.listdir(folder))):
        try:
            value = read_last(path, args.keyword, args.test_log)
        except UnreadableError as error:
            print(f"warning: {error}", file=sys.stderr)
            continue
        if value is not None:
            print(printable(f"file: {path}. {args.keyword}: {value:.2f}%. "))
            return value
    print(f"warning: {printable(str(folder))} has no log with a result; it is left out", file=sys.stderr)
    return None


def summarise_folder(directory: Path, args: argparse.Namespace) -> float:
    """Print and return the mean over the seeds of one experiment."""
    print(f"Parsing files in {directory}")
    values = [value for folder in _folders(directory) if (value := read_seed(folder, args)) is not None]
    if not values:
        mark = "=> result" if args.test_log else "Finish training"
        other = " Logs of evaluations need --test-log." if not args.test_log else ""
        raise UserError(
            f"Nothing found in {directory}: no log.txt in its sub-folders has a line '* {args.keyword}: ...%' "
            f"after '{mark}'.{other}"
        )
    spread = statistics.pstdev(values)
    if args.ci95:
        spread = 1.96 * spread / len(values) ** 0.5
    print("===")
    print(f"Summary of directory: {directory}")
    print(f"* {args.keyword}: {statistics.fmean(values):.2f}% +- {spread:.2f}%")
    print("===")
    return statistics.fmean(values)


def _folders(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise UserError(f"{directory} is not a folder. Give the folder that holds seed1, seed2, ...")
    return sorted(path for path in directory.iterdir() if path.is_dir() and not path.name.startswith("."))


def run(args: argparse.Namespace) -> None:
    """Print what CoOp's parse_test_res.py prints."""
    if not args.multi_exp:
        summarise_folder(Path(args.directory), args)
        return
    means = [summarise_folder(folder, args) for folder in _folders(Path(args.directory))]
    if not means:
        raise UserError(f"{args.directory} has no sub-folders, which --multi-exp expects: one for each experiment.")
    print("Average performance")
    print(f"* {args.keyword}: {statistics.fmean(means):.2f}%")


def main(argv: Sequence[str] | None = None) -> int:
    """Run as CoOp's parse_test_res.py does."""
    return run_command(partial(run, parse_arguments(argv)), "Stopped.")


if __name__ == "__main__":
    sys.exit(main())
