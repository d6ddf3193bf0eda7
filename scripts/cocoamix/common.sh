# Sourced by the scripts of this folder, which serve every method. From the environment:
#   TRAINER  trainer (CoCoAMix); docs/BASELINES.md has the settings of the others
#   CFG      configuration below configs/trainers/$TRAINER (vit_b16_ep50), or below configs/trainers/$CONFIGS
#   SHOTS    images per class (4)
#   DATA     the data folder (not needed for the drawn datasets)
#   PYTHON   interpreter (python)
# and of fscil.sh: DATASET (cifar100_fscil), TAG (added to the output folder's name)
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$ROOT"
SHOTS=${SHOTS:-4}
TRAINER=${TRAINER:-CoCoAMix}
CFG=${CFG:-vit_b16_ep50}
PYTHON=${PYTHON:-python}

# usage: run DIR DATASET SEED [arguments of train.py ...]; a run whose results are there is skipped, but for one in
# sessions that has not come to the last. Results of other settings are an error.
run() {
    local dir=$1 dataset=$2 seed=$3 status=1
    shift 3
    set -- \
        ${DATA:+--root "$DATA"} \
        --seed "$seed" \
        --trainer "$TRAINER" \
        --dataset-config-file "configs/datasets/$dataset.yaml" \
        --config-file "configs/trainers/${CONFIGS:-$TRAINER}/$CFG.yaml" \
        --output-dir "$dir" \
        "$@"
    if [ -f "$dir/results.json" ]; then
        status=0
        "$PYTHON" -m cocoamix.bench.finished "$dir" "$@" || status=$?
    fi
    case $status in
        0)
            echo "The results are in $dir already, so this run is skipped."
            return
            ;;
        1) ;;
        *) exit "$status" ;; # it has said why
    esac
    "$PYTHON" train.py "$@"
}

need() { # usage: need NUMBER-OF-ARGUMENTS "$@"
    local wanted=$1
    shift
    if [ $# -lt "$wanted" ]; then
        sed -n '2,3s/^# //p' "$0" >&2
        exit 2
    fi
}
