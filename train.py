"""Train and evaluate, or only evaluate, with CoOp's flags. The implementation is in cocoamix/train.py."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from cocoamix import train_command

    sys.exit(train_command.main(prog="train.py"))  # imports torch once the arguments are read
else:
    from cocoamix.train import main, parse_arguments, run, setup_cfg

    __all__ = ["main", "parse_arguments", "run", "setup_cfg"]
