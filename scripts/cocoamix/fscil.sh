#!/usr/bin/env bash
# Learn the classes of CIFAR-100 (or DATASET=mini_imagenet_fscil, cub200_fscil, warm_cool CFG=tiny) in sessions.
# usage: fscil.sh SEED [KEY VALUE ...]
CFG=${CFG:-vit_l14} TRAINER=${TRAINER:-CoCoAMixFSCIL}
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
need 1 "$@"
SEED=$1 DATASET=${DATASET:-cifar100_fscil}
shift
run "output/fscil/$DATASET/$TRAINER/$CFG${TAG:+_$TAG}/seed$SEED" "$DATASET" "$SEED" "$@"
