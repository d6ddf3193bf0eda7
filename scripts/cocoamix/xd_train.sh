#!/usr/bin/env bash
# Train on all classes of ImageNet (or SOURCE=...), for transfer to other datasets.
# usage: xd_train.sh SEED [KEY VALUE ...]
CFG=${CFG:-vit_b16_ep50_xd}
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need 1 "$@"
SEED=$1 SOURCE=${SOURCE:-imagenet}
shift
run "output/$SOURCE/$TRAINER/${CFG}_${SHOTS}shots/seed$SEED" "$SOURCE" "$SEED" DATASET.NUM_SHOTS "$SHOTS" "$@"
