#!/usr/bin/env bash
# Evaluate what train.sh trained, on SUB: new (as without it), base or all.
# usage: test.sh DATASET SEED [GPU] [SUB] [KEY VALUE ...]
# From the environment: DATA, SHOTS (16), CFG; CFG=ensemble_ep50 SHOTS=4 is the setting of the CoCoA-Mix comparison.
[ $# -ge 2 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
export TRAINER=TuneEn CFG=${CFG:-En_ep5_batch128} SHOTS=${SHOTS:-16}
DATASET=$1 SEED=$2
shift 2
if [[ ${1:-} =~ ^[0-9]+$ ]]; then
    export CUDA_VISIBLE_DEVICES=$1
    shift
fi
if [[ ${1:-} =~ ^(new|base|all)$ ]]; then
    export SUB=$1
    shift
fi
exec bash "$(dirname "${BASH_SOURCE[0]}")/../cocoamix/base2new_test.sh" "$DATASET" "$SEED" "$@"
