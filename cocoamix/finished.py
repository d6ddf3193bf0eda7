"""Tell shell scripts whether a run is finished.

    python -m cocoamix.finished FOLDER [arguments of train.py ...]

Exit status: 0 if the folder has complete results, 1 if it does not, 2 if its results are of other settings than the
arguments, of other data, of another model than the one in --model-dir, or of a newer version.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cocoamix.errors import UserError, run_command
from cocoamix.run.arguments import parse_arguments
from cocoamix.run.results import RESULTS
from cocoamix.run.state import BLOCKED, FINISHED, Folders, Request


def is_finished(folder: Path, arguments: Sequence[str] = ()) -> bool:
    """Return whether a folder has complete, usable results.

    Args:
        folder: The output folder of the run.
        arguments: The arguments of train.py. If empty, neither settings nor data are compared.

    Raises:
        UserError: The results are of other settings, of other data, of another model or of a newer version.
    """
    if not (folder / RESULTS).exists():
        return False
    request = _request(arguments)
    state = Folders(_read_dataset).state(folder, request)
    if state.kind == BLOCKED:
        raise UserError(f"{folder} is not the output of this run: {state.reason}. Move it elsewhere, then run again.")
    if state.reason:
        print(f"{folder}: {state.reason}", file=sys.stderr)
    return state.kind == FINISHED


def _read_dataset(cfg: Any) -> Any:
    from cocoamix.train import read_dataset

    return read_dataset(cfg)


def _request(arguments: Sequence[str]) -> Request:
    """Return the run that arguments of train.py describe. This imports the trainers, which takes seconds."""
    if not arguments:
        return Request(None, trains=True)
    from cocoamix.train import setup_cfg

    args = parse_arguments(arguments)
    model = Path(args.model_dir) if args.eval_only and args.model_dir else None
    return Request(setup_cfg(args), not args.eval_only, model, (model,) if model else ())


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    if not arguments:
        print("usage: python -m cocoamix.finished FOLDER [arguments of train.py ...]", file=sys.stderr)
        return 2
    folder, *rest = arguments
    return run_command(lambda: 0 if is_finished(Path(folder), rest) else 1, "Stopped.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
