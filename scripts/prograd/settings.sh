# Sourced by the scripts of this folder: the settings of ProGrad's own paper, unless the environment says otherwise.
export TRAINER=ProGrad CFG=${CFG:-rn50_ep100} SHOTS=${SHOTS:-4}
SHARED=$(cd "$(dirname "${BASH_SOURCE[0]}")/../cocoamix" && pwd)
