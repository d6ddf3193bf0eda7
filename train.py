"""Train and evaluate, or only evaluate, with CoOp's flags. The implementation is in cocoamix/train.py."""

from __future__ import annotations

import sys

from cocoamix.errors import hearing_ctrl_c

with hearing_ctrl_c("Stopped."):  # importing torch takes seconds
    from cocoamix.train import main, parse_arguments, run, setup_cfg

__all__ = ["main", "parse_arguments", "run", "setup_cfg"]

if __name__ == "__main__":
    sys.exit(main())
