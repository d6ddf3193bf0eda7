#!/usr/bin/env bash
# Evaluate what xd_train.sh trained on another dataset.
# usage: xd_test.sh DATASET SEED [KEY VALUE ...]
# From the environment: DATA, SHOTS (16), CFG; CFG=ensemble_ep50 SHOTS=4 is the setting of the CoCoA-Mix comparison.
export TRAINER=TuneEn CFG=${CFG:-En_ep5_batch128} SHOTS=${SHOTS:-16}
exec bash "$(dirname "${BASH_SOURCE[0]}")/../cocoamix/xd_test.sh" "$@"
