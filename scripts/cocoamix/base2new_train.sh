#!/usr/bin/env bash
# Train on the base classes.
# usage: base2new_train.sh DATASET SEED [KEY VALUE ...]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need 2 "$@"
DATASET=$1 SEED=$2
shift 2
run "output/base2new/train_base/$DATASET/shots_$SHOTS/$TRAINER/$CFG/seed$SEED" "$DATASET" "$SEED" \
    DATASET.NUM_SHOTS "$SHOTS" DATASET.SUBSAMPLE_CLASSES base "$@"
