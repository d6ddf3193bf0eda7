# Sourced by the scripts of this folder: the settings of DePT's own paper, unless the environment says otherwise.
export TRAINER=${TRAINER:-DePT} CFG=${CFG:-vit_b16_ep10_batch4} SHOTS=${SHOTS:-16} # or DePTKgCoOp
SHARED=$(cd "$(dirname "${BASH_SOURCE[0]}")/../cocoamix" && pwd)
