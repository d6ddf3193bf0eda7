#!/usr/bin/env bash
# Evaluate what base2new_train.sh trained, on the new classes (or SUB=base, SUB=all).
# usage: base2new_test.sh DATASET SEED [KEY VALUE ...]
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
exec bash "$SHARED/base2new_test.sh" "$@"
