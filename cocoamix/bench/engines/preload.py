"""What every run imports, for the process that runs are forked from: the trainers, and CLIP's vocabulary."""

from contextlib import suppress

import cocoamix.train  # noqa: F401
from cocoamix.clip.tokens import encode
from cocoamix.errors import UserError

with suppress(UserError):  # no CLIP package: each run says so itself
    encode("a")
