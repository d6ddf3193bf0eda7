#!/usr/bin/env bash
# Train on the base classes.
# usage: base2new_train.sh DATASET SEED [KEY VALUE ...]
# From the environment: DATA, SHOTS (16), CFG; CFG=vit_b16_ep50 SHOTS=4 is the setting of the CoCoA-Mix comparison.
# TRAINER=DePTKgCoOp builds on KgCoOp instead of CoOp.
export TRAINER=${TRAINER:-DePT} CFG=${CFG:-vit_b16_ep10_batch4} SHOTS=${SHOTS:-16}
exec bash "$(dirname "${BASH_SOURCE[0]}")/../cocoamix/base2new_train.sh" "$@"
