#!/usr/bin/env bash
# Train on base and evaluate on new classes, for datasets and seeds: DATASETS="eurosat dtd" SEEDS="1 2 3".
# usage: base2new.sh [KEY VALUE ...]
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
set -euo pipefail
source "$HERE/../interpreter.sh" # here, so that its messages are printed only once
for DATASET in ${DATASETS:-warm_cool}; do
    for SEED in ${SEEDS:-1 2 3}; do
        bash "$HERE/base2new_train.sh" "$DATASET" "$SEED" "$@"
        bash "$HERE/base2new_test.sh" "$DATASET" "$SEED" "$@"
    done
done
