"""`python -m cocoamix`: the command `cocoamix`, even if the package is not installed."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
