"""What every run imports, for the process that runs are forked from: the trainers, CLIP's vocabulary, the engine."""

from contextlib import suppress

import torch._dynamo  # noqa: F401  (the first optimizer of a process imports it, which takes two seconds)

import cocoamix.experiments.local
import cocoamix.train  # noqa: F401
from cocoamix.clip.tokens import encode
from cocoamix.errors import UserError

with suppress(UserError):  # if there is no CLIP package, each run reports it
    encode("a")
