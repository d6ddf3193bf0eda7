# Sourced by the scripts of this folder: the settings of MaPLe's own paper, unless the environment says otherwise.
case ${0##*/} in
    xd_*) CFG=${CFG:-vit_b16_c2_ep5_batch4_2ctx_cross_datasets} ;;
    *) CFG=${CFG:-vit_b16_c2_ep5_batch4_2ctx} ;;
esac
export TRAINER=MaPLe CFG SHOTS=${SHOTS:-16}
SHARED=$(cd "$(dirname "${BASH_SOURCE[0]}")/../cocoamix" && pwd)
