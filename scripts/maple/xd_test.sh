#!/usr/bin/env bash
# Evaluate what xd_train.sh trained on ImageNet (or SOURCE=...), on another dataset.
# usage: xd_test.sh DATASET SEED [KEY VALUE ...]
# From the environment: DATA, SHOTS (16), CFG; CFG=vit_b16_ep50_xd SHOTS=4 is the setting of the CoCoA-Mix comparison.
export TRAINER=MaPLe CFG=${CFG:-vit_b16_c2_ep5_batch4_2ctx_cross_datasets} SHOTS=${SHOTS:-16}
exec bash "$(dirname "${BASH_SOURCE[0]}")/../cocoamix/xd_test.sh" "$@"
