#!/usr/bin/env bash
# Train ProGrad on all classes of ImageNet (or SOURCE=...).
# usage: xd_train.sh SEED [KEY VALUE ...]
[ $# -ge 1 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
exec bash "$SHARED/xd_train.sh" "$1" "${OWN[@]}" "${@:2}"
