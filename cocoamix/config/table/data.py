"""Keys that all trainers share: the dataset, the frozen CLIP, the stored image features."""

from __future__ import annotations

from cocoamix import choices
from cocoamix.config.allowed import AutoOr, OneOf, Range
from cocoamix.config.key import HIDDEN, PROTOCOL, TRAINING_PROTOCOL, Key
from cocoamix.config.partition import KEY as PARTITION
from cocoamix.config.partition import LABEL, Partition

from .section import Section

DATASET = (
    Key(
        "DATASET.SUBSAMPLE_CLASSES",
        "Classes to use: `base` is the first half, `new` the rest.",
        default="all",
        allowed=OneOf(choices.SUBSETS),
        role=PROTOCOL,
    ),
    Key(
        PARTITION,
        "How the classes are divided into halves: in label order, as in CoOp, or after `random.Random(K).shuffle` of "
        "the sorted labels. A model trained on one half can only be evaluated under the same partition.",
        default=LABEL,
        allowed=Partition(),
        role=PROTOCOL,
    ),
    Key(
        "DATASET.FEWER_SHOTS",
        "Use all images of a class that has fewer than `NUM_SHOTS`, instead of stopping.",
        default=False,
    ),
    Key(
        "DATASET.BAD_IMAGES",
        "`stop` at a missing or unreadable image, or `skip` it and count it in results.json.",
        default="stop",
        allowed=OneOf(choices.BAD_IMAGES),
    ),
    Key("DATASET.FOLDER", "Your own images: their folder below `DATASET.ROOT`. Empty: `ROOT` itself.", default=""),
    Key("DATASET.CSV", "`CSVDataset`: the table. Empty: the only .csv or .tsv file in the folder.", default=""),
    Key(
        "DATASET.CLASSNAMES",
        "Your own images: a file of class names. Empty: the folder names, or the names in the table.",
        default="",
    ),
    Key(
        "DATASET.SPLIT",
        "Your own images: fractions for train, val and test, if the data has no split.",
        default=[0.5, 0.2, 0.3],
    ),
)

TRAINING = (
    Key(
        "TRAIN.WANDB",
        "Send the rows of metrics.csv to Weights & Biases, which must be installed (`pip install wandb`).",
        default=False,
        role=HIDDEN,
    ),
    Key("TRAIN.WANDB_PROJECT", "Name of the Weights & Biases project.", default="cocoamix", role=HIDDEN),
)

EVALUATION = (
    Key(
        "TEST.SAVE_PREDICTIONS",
        "Write the prediction for each image to predictions.csv, next to results.json.",
        default=False,
        role=HIDDEN,
    ),
)

BACKBONE = (
    Key(
        "MODEL.BACKBONE.SOURCE",
        "Package that runs CLIP. `auto`: `clip` if it can be imported, else `open_clip`.",
        default="auto",
        allowed=OneOf(choices.SOURCES),
        role=PROTOCOL,
    ),
    Key(
        "MODEL.BACKBONE.WEIGHTS",
        "File of CLIP weights: OpenAI's archive, a state dict, an open_clip checkpoint or safetensors. Empty: OpenAI's "
        "weights, downloaded once. `random`: random weights, for tests. The protocol records the hash of the weights.",
        default="",
        role=HIDDEN,
    ),
    Key(
        "MODEL.BACKBONE.ACTIVATION",
        "`quick_gelu` for OpenAI's weights, `gelu` for open_clip weights trained with it.",
        default="quick_gelu",
        allowed=OneOf(choices.ACTIVATIONS),
        role=PROTOCOL,
    ),
    Key(
        "MODEL.BACKBONE.TEXT_CHUNK",
        "Number of prompts encoded at once. Fewer need less memory but more time; `auto` stays within a memory budget.",
        default="auto",
        allowed=AutoOr(Range(1, 10**6), "prompts"),
        also=(int,),
        role=HIDDEN,
    ),
)

CACHE = (
    Key(
        "CACHE.MODE",
        "Images whose features are stored: none (`off`), test and validation images (`test`), or `all`. Results are "
        "the same.",
        default="all",
        allowed=OneOf(choices.CACHE_MODES),
        role=HIDDEN,
    ),
    Key(
        "CACHE.DIR",
        "Folder of the stored features. Empty: `$COCOAMIX_CACHE/features`, else `~/.cache/cocoamix/features`.",
        default="",
        role=HIDDEN,
    ),
    Key(
        "CACHE.VIEWS",
        "Augmentations of a training image. 0: a new one in each epoch, as in CoOp. 1: a fixed centre crop. n: the "
        "same n in turn. Any value but 0 departs from CoOp's protocol.",
        default=0,
        allowed=Range(0, 10**6),
        role=TRAINING_PROTOCOL,
    ),
    Key("CACHE.*", role=PROTOCOL),  # keys of recorded runs that are no longer read
)

SECTIONS = (
    Section("Datasets", "[OWN_IMAGES.md](OWN_IMAGES.md) explains the keys for your own images.", DATASET),
    Section("Logging", "", TRAINING),
    Section("Evaluation", "", EVALUATION),
    Section("The frozen CLIP", "", BACKBONE),
    Section("Stored image features", "[SPEED.md](SPEED.md) describes what is stored and how large it is.", CACHE),
)
