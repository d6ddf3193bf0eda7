#!/usr/bin/env bash
# Train on all classes of a dataset, such as imagenet, to be transferred to others.
# usage: xd_train.sh DATASET SEED [KEY VALUE ...]
# From the environment: DATA, SHOTS (16), CFG; CFG=vit_b16_ep50_xd SHOTS=4 is the setting of the CoCoA-Mix comparison.
[ $# -ge 2 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
export TRAINER=MaPLe CFG=${CFG:-vit_b16_c2_ep5_batch4_2ctx_cross_datasets} SHOTS=${SHOTS:-16} SOURCE=$1
shift
exec bash "$(dirname "${BASH_SOURCE[0]}")/../cocoamix/xd_train.sh" "$@"
