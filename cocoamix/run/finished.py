"""Whether there is nothing left to do in the folder of a run, for shell scripts.

    python -m cocoamix.run.finished FOLDER

Exit status: 0 if it has results of all that was to be evaluated, 1 if it has not, 2 if a newer version wrote them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cocoamix.errors import run_command

from .results import RESULTS, NewerResultsError, Results, ResultsError


def is_finished(folder: Path) -> bool:
    """Say whether a folder has results that can be used, of all sessions. Newer ones are refused."""
    path = folder / RESULTS
    if not path.exists():
        return False
    try:
        return Results.read(path).complete
    except NewerResultsError:
        raise
    except ResultsError as error:
        print(error, file=sys.stderr)
        return False


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    if len(arguments) != 1:
        print("usage: python -m cocoamix.run.finished FOLDER", file=sys.stderr)
        return 2
    return run_command(lambda: 0 if is_finished(Path(arguments[0])) else 1, "Stopped.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
