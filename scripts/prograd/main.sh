#!/usr/bin/env bash
# ProGrad's few-shot runs on all classes, seeds 1 2 3 (or SEEDS=...).
# usage: main.sh DATASET CFG CTP NCTX SHOTS CSC [KEY VALUE ...]
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
exec bash "$SHARED/../coop/main.sh" "$@"
