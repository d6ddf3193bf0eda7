"""`python -m cocoamix.train`: one run with CoOp's flags, for an installed package. A source tree has train.py."""

from __future__ import annotations

import sys


def main() -> int:
    """Do the run that the command line describes; return the exit status."""
    from .trainers.command import main as run  # here, because the library imports no trainers by itself

    return run()


if __name__ == "__main__":
    sys.exit(main())
