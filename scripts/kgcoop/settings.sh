# Sourced by the scripts of this folder: the settings of KgCoOp's own paper, unless the environment says otherwise.
export TRAINER=KgCoOp CFG=${CFG:-vit_b16_ep100_ctxv1} SHOTS=${SHOTS:-16}
SHARED=$(cd "$(dirname "${BASH_SOURCE[0]}")/../cocoamix" && pwd)
