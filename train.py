"""One run: train and evaluate, or evaluate only, with CoOp's flags. What it does is in trainers/command.py."""

from __future__ import annotations

import sys

from cocoamix.trainers.command import main, parse_arguments, run, setup_cfg

__all__ = ["main", "parse_arguments", "run", "setup_cfg"]

if __name__ == "__main__":
    sys.exit(main())
