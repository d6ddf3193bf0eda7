"""Print mean and deviation over seeds from logs, with CoOp's arguments. `cocoamix report` offers more."""

import sys

from cocoamix.report.readers.coop_parser import main

if __name__ == "__main__":
    sys.exit(main())
