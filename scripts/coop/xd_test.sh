#!/usr/bin/env bash
# Evaluate what xd_train.sh trained with CoOp on another dataset.
# usage: xd_test.sh DATASET SEED [KEY VALUE ...]
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
exec bash "$SHARED/xd_test.sh" "$@"
