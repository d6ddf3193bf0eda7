#!/usr/bin/env bash
# Compare CLIP-ZSL, CoOp-FSCIL, CoCoA-Mix and its prompts under uniform weights, for SEEDS="1 2 3": tables and figures.
# usage: fscil_compare.sh [KEY VALUE ...]
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
set -euo pipefail
export DATASET=${DATASET:-cifar100_fscil} CFG=${CFG:-vit_l14}
source "$HERE/../interpreter.sh"
cd "$ROOT"
ALL=output/fscil/$DATASET
TRAINER=ZeroshotCLIPFSCIL bash "$HERE/fscil.sh" "${ZEROSHOT_SEED:-1}" "$@"
for SEED in ${SEEDS:-1 2 3}; do
    TRAINER=CoOpFSCIL bash "$HERE/fscil.sh" "$SEED" "$@"
    TRAINER=CoCoAMixFSCIL bash "$HERE/fscil.sh" "$SEED" "$@"
    # The weights do not change the prompts, so nothing is trained again.
    TRAINER=CoCoAMixFSCIL TAG=uniform bash "$HERE/fscil.sh" "$SEED" \
        --eval-only --model-dir "$ALL/CoCoAMixFSCIL/$CFG/seed$SEED" TRAINER.COCOAMIX.ENSEMBLE uniform "$@"
done
"$PYTHON" -m cocoamix report "$ALL" --paper --markdown "$ALL/report.md" --csv "$ALL/report.csv" --plots "$ALL/figures"
