#!/usr/bin/env bash
# ProGrad's few-shot runs on all classes, seeds 1 2 3 (or SEEDS=...).
# usage: main.sh DATASET CFG CTP NCTX SHOTS CSC [KEY VALUE ...]
[ $# -ge 6 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
SHOTS=$5
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
exec bash "$SHARED/../coop/main.sh" "${@:1:6}" "${OWN[@]}" "${@:7}"
