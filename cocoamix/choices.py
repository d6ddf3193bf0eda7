"""The values that settings can take.

The table of keys (`cocoamix.config.table`) and the functions that use a value share these tuples. They are in
a separate module, because the report and the benchmark runner read the table without importing torch.
"""

from __future__ import annotations

# Data
SUBSETS = ("all", "base", "new")
BAD_IMAGES = ("stop", "skip")
CACHE_MODES = ("off", "test", "all")
SAMPLERS = ("RandomSampler", "SequentialSampler")

# The frozen CLIP
SOURCES = ("auto", "clip", "open_clip")
ACTIVATIONS = ("quick_gelu", "gelu")
PRECISIONS = ("auto", "fp32", "fp16", "bf16", "amp")
POSITIONS = ("end", "middle", "front")  # of the class name in a prompt
ENSEMBLES = (7, 80)  # ImageNet templates of zero-shot CLIP

# Optimisation
OPTIMIZERS = ("adam", "amsgrad", "sgd", "rmsprop", "radam", "adamw")
SCHEDULES = ("single_step", "multi_step", "cosine")
WARMUPS = ("linear", "constant")

# CoCoA-Mix
LOSSES = ("ce", "coa", "focal", "gce", "ce+mae", "ce+coa")
MIXTURES = ("coa", "uniform", "none")
STAGES = ("one", "two")
WEIGHT_FITS = ("train", "heldout")
OUT_CLASSES = ("word", "string", "both", "none")
DOMAINS = ("auto", "in", "out")

# Other methods
UNIFORM_MIXTURES = ("none", "uniform")  # of a learned and the hand-crafted prompt
SAMPLE_LOSSES = ("ce", "nll")  # of T_En
SESSION_SPLITS = ("auto", "cec", "random")
TUNED_CLASSES = ("session", "seen", "all")
POOLS = ("text", "visual")  # of L2P
FSPT_POSITIONS = ("end", "middle")  # of the class name

# Evaluation
FINAL_MODELS = ("last_step", "best_val")
TEST_SPLITS = ("test", "val")
