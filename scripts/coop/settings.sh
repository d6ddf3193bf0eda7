# Sourced by the scripts of this folder: the settings of CoOp's own paper, unless the environment says otherwise.
export TRAINER=${TRAINER:-CoOp} CFG=${CFG:-vit_b16_ctxv1} SHOTS=${SHOTS:-16}
SHARED=$(cd "$(dirname "${BASH_SOURCE[0]}")/../cocoamix" && pwd)
