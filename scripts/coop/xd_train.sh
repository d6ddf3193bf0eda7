#!/usr/bin/env bash
# Train CoOp on all classes of ImageNet (or SOURCE=...).
# usage: xd_train.sh SEED [KEY VALUE ...]
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
exec bash "$SHARED/xd_train.sh" "$@"
