#!/usr/bin/env bash
# Zero-shot CLIP on a dataset: CFG is a backbone's configuration, of CoOp's (TRAINER=ZeroshotCLIP2 averages templates).
# usage: zeroshot.sh DATASET CFG [KEY VALUE ...]
TRAINER=${TRAINER:-ZeroshotCLIP} CFG=${2:-}
source "$(dirname "${BASH_SOURCE[0]}")/../cocoamix/common.sh"
need 2 "$@"
DATASET=$1
shift 2
CONFIGS=CoOp run "output/$TRAINER/$CFG/$DATASET" "$DATASET" 1 --eval-only "$@"
