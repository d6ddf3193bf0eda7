#!/usr/bin/env bash
# Train on all classes of ImageNet (or SOURCE=...), to be transferred to other datasets.
# usage: xd_train.sh SEED [KEY VALUE ...]
# From the environment: DATA, SHOTS (16), CFG; CFG=vit_b16_ep50 SHOTS=4 is the setting of the CoCoA-Mix comparison.
# TRAINER=DePTKgCoOp builds on KgCoOp instead of CoOp.
export TRAINER=${TRAINER:-DePT} CFG=${CFG:-vit_b16_ep10_batch4} SHOTS=${SHOTS:-16}
exec bash "$(dirname "${BASH_SOURCE[0]}")/../cocoamix/xd_train.sh" "$@"
