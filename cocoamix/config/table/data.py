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
        "`base` is the first half of the classes, `new` the rest.",
        default="all",
        allowed=OneOf(choices.SUBSETS),
        role=PROTOCOL,
    ),
    Key(
        PARTITION,
        "How the classes are divided into halves: in the order of their labels, as CoOp does, or after Python's "
        "`random.Random(K).shuffle` of the sorted labels. A model that was trained on one half is evaluated under the "
        "same partition alone.",
        default=LABEL,
        allowed=Partition(),
        role=PROTOCOL,
    ),
    Key("DATASET.FEWER_SHOTS", "Take what there is where a class has fewer than `NUM_SHOTS` images.", default=False),
    Key(
        "DATASET.BAD_IMAGES",
        "Stop at an image that is missing or unreadable, or `skip` it and count it in results.json.",
        default="stop",
        allowed=OneOf(choices.BAD_IMAGES),
    ),
    Key("DATASET.FOLDER", "Your own images: their folder below `DATASET.ROOT`; empty is `ROOT` itself.", default=""),
    Key("DATASET.CSV", "`CSVDataset`: the table; empty is the one .csv or .tsv file in the folder.", default=""),
    Key(
        "DATASET.CLASSNAMES",
        "Your own images: a file of class names; empty takes those of the folders or of the table.",
        default="",
    ),
    Key(
        "DATASET.SPLIT",
        "Your own images: shares of train, val and test where there is no split.",
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
    Key("TRAIN.WANDB_PROJECT", "The project there.", default="cocoamix", role=HIDDEN),
)

EVALUATION = (
    Key(
        "TEST.SAVE_PREDICTIONS",
        "Keep the prediction for each image in predictions.csv, beside results.json.",
        default=False,
        role=HIDDEN,
    ),
)

BACKBONE = (
    Key(
        "MODEL.BACKBONE.SOURCE",
        "Package that runs CLIP; `auto` is `clip` where it imports.",
        default="auto",
        allowed=OneOf(choices.SOURCES),
        role=PROTOCOL,
    ),
    Key(
        "MODEL.BACKBONE.WEIGHTS",
        "File of CLIP weights (OpenAI's archive, a state dict, open_clip's, safetensors); empty downloads OpenAI's "
        "once, `random` is for trials. The protocol has the hash of the weights.",
        default="",
        role=HIDDEN,
    ),
    Key(
        "MODEL.BACKBONE.ACTIVATION",
        "OpenAI's is `quick_gelu`; `gelu` is for open_clip weights that were trained with it.",
        default="quick_gelu",
        allowed=OneOf(choices.ACTIVATIONS),
        role=PROTOCOL,
    ),
    Key(
        "MODEL.BACKBONE.TEXT_CHUNK",
        "Prompts that are encoded together; fewer take less memory and more time, `auto` bounds the memory.",
        default="auto",
        allowed=AutoOr(Range(1, 10**6), "prompts"),
        also=(int,),
        role=HIDDEN,
    ),
)

CACHE = (
    Key(
        "CACHE.MODE",
        "Image features that are stored: none, those of test and validation images, or all. The results are the same.",
        default="all",
        allowed=OneOf(choices.CACHE_MODES),
        role=HIDDEN,
    ),
    Key(
        "CACHE.DIR",
        "Where; empty is `$COCOAMIX_CACHE/features`, else `~/.cache/cocoamix/features`.",
        default="",
        role=HIDDEN,
    ),
    Key(
        "CACHE.VIEWS",
        "Augmentations of a training image: 0 one for each epoch, as CoOp; 1 a fixed centre crop; n the same n in "
        "turn. Anything but 0 is another protocol.",
        default=0,
        allowed=Range(0, 10**6),
        role=TRAINING_PROTOCOL,
    ),
    Key("CACHE.*", role=PROTOCOL),  # of older versions
)

SECTIONS = (
    Section("Datasets", "[OWN_IMAGES.md](OWN_IMAGES.md) explains the keys of your own images.", DATASET),
    Section("Records of training", "", TRAINING),
    Section("Evaluation", "", EVALUATION),
    Section("The frozen CLIP", "", BACKBONE),
    Section("Stored image features", "[SPEED.md](SPEED.md) tells what is stored and what it takes.", CACHE),
)
