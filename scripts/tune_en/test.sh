#!/usr/bin/env bash
# Evaluate what train.sh trained, on SUB: new (as without it), base or all.
# usage: test.sh DATASET SEED [GPU] [SUB] [KEY VALUE ...]
[ $# -ge 2 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
DATASET=$1 SEED=$2
shift 2
if take_gpu "$@"; then shift; fi
if [[ ${1:-} =~ ^(new|base|all)$ ]]; then
    export SUB=$1
    shift
fi
exec bash "$SHARED/base2new_test.sh" "$DATASET" "$SEED" "$@"
