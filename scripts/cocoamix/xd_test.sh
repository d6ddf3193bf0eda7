#!/usr/bin/env bash
# Evaluate the model of xd_train.sh on another dataset.
# usage: xd_test.sh DATASET SEED [KEY VALUE ...]
CFG=${CFG:-vit_b16_ep50_xd}
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need 2 "$@"
DATASET=$1 SEED=$2 SOURCE=${SOURCE:-imagenet}
shift 2
run "output/evaluation/$TRAINER/${CFG}_${SHOTS}shots/$DATASET/seed$SEED" "$DATASET" "$SEED" \
    --eval-only --model-dir "output/$SOURCE/$TRAINER/${CFG}_${SHOTS}shots/seed$SEED" "$@"
