#!/usr/bin/env bash
# Train CoOp on all classes of ImageNet (or SOURCE=...).
# usage: xd_train.sh SEED [KEY VALUE ...]
CFG=${CFG:-vit_b16_ep50_ctxv1}
source "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
exec bash "$SHARED/xd_train.sh" "$@"
