# Sourced by the scripts of this folder: the settings of T_En's own paper, unless the environment says otherwise.
export TRAINER=TuneEn CFG=${CFG:-En_ep5_batch128} SHOTS=${SHOTS:-16}
SHARED=$(cd "$(dirname "${BASH_SOURCE[0]}")/../cocoamix" && pwd)

# usage: take_gpu [GPU]; the number of a GPU as in the original's scripts. Says whether there was one.
take_gpu() {
    [[ ${1:-} =~ ^[0-9]+$ ]] && export CUDA_VISIBLE_DEVICES=$1
}
