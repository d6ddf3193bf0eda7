#!/usr/bin/env bash
# CoOp's few-shot runs on all classes, seeds 1 2 3 (or SEEDS=...).
# usage: main.sh DATASET CFG CTP NCTX SHOTS CSC [KEY VALUE ...]
CFG=${2:-} SHOTS=${5:-}
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
source "$SHARED/common.sh"
need 6 "$@"
DATASET=$1 CTP=$3 NCTX=$4 CSC=$6
shift 6
for SEED in ${SEEDS:-1 2 3}; do
    run "output/$DATASET/$TRAINER/${CFG}_${SHOTS}shots/nctx${NCTX}_csc${CSC}_ctp$CTP/seed$SEED" "$DATASET" "$SEED" \
        DATASET.NUM_SHOTS "$SHOTS" TRAINER.COOP.N_CTX "$NCTX" TRAINER.COOP.CSC "$CSC" \
        TRAINER.COOP.CLASS_TOKEN_POSITION "$CTP" "$@"
done
