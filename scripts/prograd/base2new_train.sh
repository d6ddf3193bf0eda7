#!/usr/bin/env bash
# Train ProGrad on the base classes.
# usage: base2new_train.sh DATASET SEED [KEY VALUE ...]
[ $# -ge 2 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
exec bash "$SHARED/base2new_train.sh" "${@:1:2}" "${OWN[@]}" "${@:3}"
