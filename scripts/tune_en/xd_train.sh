#!/usr/bin/env bash
# Train on all classes of ImageNet (or SOURCE=...), to be transferred to other datasets.
# usage: xd_train.sh SEED [KEY VALUE ...]
# From the environment: DATA, SHOTS (16), CFG; CFG=ensemble_ep50 SHOTS=4 is the setting of the CoCoA-Mix comparison.
export TRAINER=TuneEn CFG=${CFG:-En_ep5_batch128} SHOTS=${SHOTS:-16}
exec bash "$(dirname "${BASH_SOURCE[0]}")/../cocoamix/xd_train.sh" "$@"
