# Sourced by the scripts of this folder: the settings of CoCoOp's own paper, unless the environment says otherwise.
export TRAINER=CoCoOp CFG=${CFG:-vit_b16_c4_ep10_batch1_ctxv1} SHOTS=${SHOTS:-16}
SHARED=$(cd "$(dirname "${BASH_SOURCE[0]}")/../cocoamix" && pwd)
