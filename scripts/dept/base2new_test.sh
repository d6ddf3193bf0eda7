#!/usr/bin/env bash
# Evaluate what base2new_train.sh trained, on the new classes (or SUB=base, SUB=all).
# usage: base2new_test.sh DATASET SEED [KEY VALUE ...]
# From the environment: DATA, SHOTS (16), CFG; CFG=vit_b16_ep50 SHOTS=4 is the setting of the CoCoA-Mix comparison.
# TRAINER=DePTKgCoOp builds on KgCoOp instead of CoOp.
export TRAINER=${TRAINER:-DePT} CFG=${CFG:-vit_b16_ep10_batch4} SHOTS=${SHOTS:-16}
exec bash "$(dirname "${BASH_SOURCE[0]}")/../cocoamix/base2new_test.sh" "$@"
