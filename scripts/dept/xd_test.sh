#!/usr/bin/env bash
# Evaluate what xd_train.sh trained on another dataset.
# usage: xd_test.sh DATASET SEED [KEY VALUE ...]
# From the environment: DATA, SHOTS (16), CFG; CFG=vit_b16_ep50 SHOTS=4 is the setting of the CoCoA-Mix comparison.
# TRAINER=DePTKgCoOp builds on KgCoOp instead of CoOp.
export TRAINER=${TRAINER:-DePT} CFG=${CFG:-vit_b16_ep10_batch4} SHOTS=${SHOTS:-16}
exec bash "$(dirname "${BASH_SOURCE[0]}")/../cocoamix/xd_test.sh" "$@"
