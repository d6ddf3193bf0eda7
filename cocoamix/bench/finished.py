"""Tell shell scripts whether a run is finished.

    python -m cocoamix.bench.finished FOLDER [arguments of train.py ...]

Exit status: 0 if the folder has complete results, 1 if it does not, 2 if the results belong to other settings than the
arguments or to another model than the one in --model-dir, or if a newer version wrote them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cocoamix.errors import UserError, run_command
from cocoamix.run.arguments import parse_arguments
from cocoamix.run.results import RESULTS, NewerResultsError, Results, ResultsError

from .comparison import differing, differing_model, settings_of_arguments


def is_finished(folder: Path, arguments: Sequence[str] = ()) -> bool:
    """Return whether a folder has complete, usable results.

    Args:
        folder: The output folder of the run.
        arguments: The arguments of train.py. If empty, settings are not compared.

    Raises:
        UserError: The results are of other settings, of another model or of a newer version.
    """
    path = folder / RESULTS
    if not path.exists():
        return False
    try:
        results = Results.read(path)
    except NewerResultsError:
        raise
    except ResultsError as error:
        print(error, file=sys.stderr)
        return False
    trains = "--eval-only" not in arguments
    other = differing(settings_of_arguments(arguments), results, arguments, trains) if arguments else ""
    if other:
        raise UserError(
            f"{folder} holds results of other settings ({other}). Move that folder elsewhere, then run again."
        )
    if arguments:
        _refuse_other_model(folder, results, arguments)
    return results.complete


def _refuse_other_model(folder: Path, results: Results, arguments: Sequence[str]) -> None:
    """Refuse the results of an evaluation whose model has since been retrained with other settings."""
    args = parse_arguments(arguments)
    if not (args.eval_only and args.model_dir):
        return
    try:
        training = Results.read(Path(args.model_dir, RESULTS))
    except ResultsError:
        return  # the training settings are unknown
    other = differing_model(results, training)
    if other:
        raise UserError(
            f"{folder} holds results of another model than the one in {args.model_dir} ({other}). Move {folder} "
            "elsewhere, then run again."
        )


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    if not arguments:
        print("usage: python -m cocoamix.bench.finished FOLDER [arguments of train.py ...]", file=sys.stderr)
        return 2
    folder, *rest = arguments
    return run_command(lambda: 0 if is_finished(Path(folder), rest) else 1, "Stopped.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
