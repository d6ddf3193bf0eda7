"""`python -m cocoamix.features`: look at the store, or clear it."""

import sys

from .store import main

sys.exit(main())
