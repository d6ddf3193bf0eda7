#!/usr/bin/env bash
# Train DePT on the base classes.
# usage: base2new_train.sh DATASET SEED [KEY VALUE ...]
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
exec bash "$SHARED/base2new_train.sh" "$@"
