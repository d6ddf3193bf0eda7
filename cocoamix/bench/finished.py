"""Whether there is nothing left to do in the folder of a run, for shell scripts.

    python -m cocoamix.bench.finished FOLDER [arguments of train.py ...]

Exit status: 0 if it has results of all that was to be evaluated, 1 if it has not, 2 if they are of other settings than
the arguments ask for, or if a newer version wrote them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cocoamix.errors import UserError, run_command
from cocoamix.run.results import RESULTS, NewerResultsError, Results, ResultsError

from .comparison import differing, settings_of_arguments


def is_finished(folder: Path, arguments: Sequence[str] = ()) -> bool:
    """Say whether a folder has results that can be used, of all sessions. Newer ones and other settings are refused.

    arguments: of train.py; without them, settings are not compared.
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
    other = differing(settings_of_arguments(arguments), results, arguments) if arguments else ""
    if other:
        raise UserError(f"{folder} holds results of other settings ({other}). Move that folder away, and run again.")
    return results.complete


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    if not arguments:
        print("usage: python -m cocoamix.bench.finished FOLDER [arguments of train.py ...]", file=sys.stderr)
        return 2
    folder, *rest = arguments
    return run_command(lambda: 0 if is_finished(Path(folder), rest) else 1, "Stopped.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
