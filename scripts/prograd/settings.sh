# Sourced by the scripts of this folder: the settings of ProGrad's own paper, unless the environment says otherwise.
source "$(dirname "${BASH_SOURCE[0]}")/../trained_on.sh"
case $(trained_on "$@") in
    imagenet) CFG=${CFG:-rn50_ep50} ;;
    *) CFG=${CFG:-rn50_ep100} ;;
esac
export TRAINER=ProGrad CFG SHOTS=${SHOTS:-4}
SHARED=$(cd "$(dirname "${BASH_SOURCE[0]}")/../cocoamix" && pwd)

# What the paper sets for these alone; before the KEY VALUE pairs of the command, so that they prevail.
OWN=()
case $(trained_on "$@"):$SHOTS in
    oxford_flowers:8 | oxford_flowers:16 | dtd:8 | dtd:16 | eurosat:8 | eurosat:16) OWN=(LOSS.LAMBDA 0.8) ;;
esac
