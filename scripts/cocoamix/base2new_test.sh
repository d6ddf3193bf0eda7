#!/usr/bin/env bash
# Evaluate the model of base2new_train.sh on the new classes (or SUB=base, SUB=all).
# usage: base2new_test.sh DATASET SEED [KEY VALUE ...]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need 2 "$@"
DATASET=$1 SEED=$2 SUB=${SUB:-new}
shift 2
COMMON="$DATASET/shots_$SHOTS/$TRAINER/$CFG/seed$SEED"
run "output/base2new/test_$SUB/$COMMON" "$DATASET" "$SEED" \
    --eval-only --model-dir "output/base2new/train_base/$COMMON" \
    DATASET.NUM_SHOTS "$SHOTS" DATASET.SUBSAMPLE_CLASSES "$SUB" "$@"
