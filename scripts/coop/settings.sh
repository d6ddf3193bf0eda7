# Sourced by the scripts of this folder: the settings of CoOp's own paper, unless the environment says otherwise.
source "$(dirname "${BASH_SOURCE[0]}")/../trained_on.sh"
case $(trained_on "$@") in
    imagenet) CFG=${CFG:-vit_b16_ep50_ctxv1} ;;
    *) CFG=${CFG:-vit_b16_ctxv1} ;;
esac
export TRAINER=${TRAINER:-CoOp} CFG SHOTS=${SHOTS:-16}
SHARED=$(cd "$(dirname "${BASH_SOURCE[0]}")/../cocoamix" && pwd)
