"""Every general key and its default. Trainers add their own node under TRAINER.

All of Dassl's keys are here, so that its configurations load; those in `unsupported.py` must keep their default.
"""

from __future__ import annotations

from yacs.config import CfgNode

cfg_default = CfgNode(
    {
        "VERSION": 1,
        "OUTPUT_DIR": "./output",  # logs, checkpoints and TensorBoard files of the run
        "RESUME": "",  # run directory to resume from, if not OUTPUT_DIR
        "SEED": -1,  # negative: unseeded
        "USE_CUDA": True,  # has no effect where there is no CUDA device
        "VERBOSE": True,  # print the parts as they are built, and the size of the dataset
        "INPUT": {
            "SIZE": (224, 224),  # height, width
            "INTERPOLATION": "bilinear",  # bilinear, bicubic or nearest
            "TRANSFORMS": (),  # names listed in dassl.data.transforms.AVAI_CHOICES
            "NO_TRANSFORM": False,
            "PIXEL_MEAN": [0.485, 0.456, 0.406],  # of ImageNet; CLIP's differ
            "PIXEL_STD": [0.229, 0.224, 0.225],
            "CROP_PADDING": 4,  # random_crop: border added before cropping
            "RRCROP_SCALE": (0.08, 1.0),  # random_resized_crop: share of the area that is kept
            "CUTOUT_N": 1,
            "CUTOUT_LEN": 16,
            "GN_MEAN": 0.0,
            "GN_STD": 0.15,
            "RANDAUGMENT_N": 2,
            "RANDAUGMENT_M": 10,
            "COLORJITTER_B": 0.4,  # brightness
            "COLORJITTER_C": 0.4,  # contrast
            "COLORJITTER_S": 0.4,  # saturation
            "COLORJITTER_H": 0.1,  # hue
            "RGS_P": 0.2,  # randomgrayscale: probability
            "GB_P": 0.5,  # gaussian_blur: probability
            "GB_K": 21,  # gaussian_blur: kernel size, odd
        },
        "DATASET": {
            "ROOT": "",  # folder that holds all datasets
            "NAME": "",
            "SOURCE_DOMAINS": (),  # this and the keys below except NUM_SHOTS: only for a dataset that reads them
            "TARGET_DOMAINS": (),
            "NUM_LABELED": -1,
            "NUM_SHOTS": -1,  # images per class; below 1: all of them
            "VAL_PERCENT": 0.1,
            "STL10_FOLD": -1,
            "CIFAR_C_TYPE": "",
            "CIFAR_C_LEVEL": 1,
            "ALL_AS_UNLABELED": False,
        },
        "DATALOADER": {
            "NUM_WORKERS": 4,
            "K_TRANSFORMS": 1,
            "RETURN_IMG0": False,
            "TRAIN_X": {  # labelled training images
                "SAMPLER": "RandomSampler",
                "BATCH_SIZE": 32,
                "N_DOMAIN": 0,
                "N_INS": 16,  # RandomClassSampler: images per class and batch
            },
            "TRAIN_U": {
                "SAME_AS_X": True,
                "SAMPLER": "RandomSampler",
                "BATCH_SIZE": 32,
                "N_DOMAIN": 0,
                "N_INS": 16,
            },
            "TEST": {"SAMPLER": "SequentialSampler", "BATCH_SIZE": 32},
        },
        "MODEL": {
            "INIT_WEIGHTS": "",  # file of weights to start from
            "BACKBONE": {"NAME": "", "PRETRAINED": True},
            "HEAD": {"NAME": "", "HIDDEN_LAYERS": (), "ACTIVATION": "relu", "BN": True, "DROPOUT": 0.0},
        },
        "OPTIM": {
            "NAME": "adam",  # adam, amsgrad, sgd, rmsprop, radam or adamw
            "LR": 0.0003,
            "WEIGHT_DECAY": 5e-4,
            "MOMENTUM": 0.9,  # sgd and rmsprop
            "SGD_DAMPNING": 0,  # spelt as in Dassl
            "SGD_NESTEROV": False,
            "RMSPROP_ALPHA": 0.99,
            "ADAM_BETA1": 0.9,  # all of the Adam family
            "ADAM_BETA2": 0.999,
            "STAGED_LR": False,
            "NEW_LAYERS": (),
            "BASE_LR_MULT": 0.1,
            "LR_SCHEDULER": "single_step",  # single_step, multi_step or cosine
            "STEPSIZE": (-1,),  # epochs; single_step: the last entry, below 1 means MAX_EPOCH
            "GAMMA": 0.1,  # factor at each step
            "MAX_EPOCH": 10,
            "WARMUP_EPOCH": -1,  # number of warm-up epochs; 0 or less: no warm-up
            "WARMUP_TYPE": "linear",  # linear or constant
            "WARMUP_CONS_LR": 1e-5,  # rate of a constant warm-up
            "WARMUP_MIN_LR": 1e-5,  # first epoch's rate of a linear warm-up
            "WARMUP_RECOUNT": True,  # the schedule starts at 0 after the warm-up, not at WARMUP_EPOCH
        },
        "TRAIN": {
            "CHECKPOINT_FREQ": 0,  # epochs between checkpoints; 0: only the last epoch
            "PRINT_FREQ": 10,  # batches between log lines
            "COUNT_ITER": "train_x",
        },
        "TEST": {
            "EVALUATOR": "Classification",
            "PER_CLASS_RESULT": False,
            "COMPUTE_CMAT": False,  # save the confusion matrix as cmat.pt in OUTPUT_DIR
            "NO_TEST": False,
            "SPLIT": "test",  # test or val, for the final evaluation
            "FINAL_MODEL": "last_step",  # last_step, or best_val: evaluate every epoch and keep the best
        },
        "TRAINER": {"NAME": ""},
    }
)
