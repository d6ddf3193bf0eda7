#!/usr/bin/env bash
# Train T_En's weight generator on the base classes. TRAINER.ENLEARN.PROMPTS names runs whose prompts it takes.
# usage: train.sh DATASET SEED [GPU] [KEY VALUE ...]
[ $# -ge 2 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
DATASET=$1 SEED=$2
shift 2
if take_gpu "$@"; then shift; fi
exec bash "$SHARED/base2new_train.sh" "$DATASET" "$SEED" "$@"
