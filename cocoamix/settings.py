"""Which keys of a configuration are no settings: they say where and how fast a run goes, not what it computes.

Nothing is imported here: the trainers and the report, which needs no torch, both read it.
"""

from __future__ import annotations

NOT_SETTINGS = frozenset(
    {
        "OUTPUT_DIR",
        "RESUME",
        "VERBOSE",
        "USE_CUDA",
        "DATASET.ROOT",
        "MODEL.BACKBONE.WEIGHTS",  # the protocol has the hash of what is in the file
        "MODEL.BACKBONE.TEXT_CHUNK",
        "CACHE.MODE",
        "CACHE.DIR",
        "DATALOADER.NUM_WORKERS",
        "TRAIN.PRINT_FREQ",
        "TRAIN.CHECKPOINT_FREQ",
        "TEST.PER_CLASS_RESULT",
        "TEST.COMPUTE_CMAT",
        "TEST.NO_TEST",
        "FSCIL.LAST_SESSION",
        "DATALOADER.TEST.BATCH_SIZE",
    }
)
