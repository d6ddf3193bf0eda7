#!/usr/bin/env bash
# Train MaPLe on all classes of a dataset, such as imagenet.
# usage: xd_train.sh DATASET SEED [KEY VALUE ...]
[ $# -ge 2 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
export SOURCE=$1
shift
exec bash "$SHARED/xd_train.sh" "$@"
