# Sourced by the scripts of this folder, which serve every method. Environment variables and their defaults:
#   TRAINER  trainer (CoCoAMix); docs/BASELINES.md has the settings of the others
#   CFG      configuration below configs/trainers/$TRAINER (vit_b16_ep50), or below configs/trainers/$CONFIGS
#   SHOTS    images per class (4)
#   DATA     data folder (not needed for the synthetic datasets)
#   COCOAMIX_PYTHON  interpreter (that of .venv, else python): see scripts/interpreter.sh
# For fscil.sh also: DATASET (cifar100_fscil), TAG (added to the name of the output folder)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../interpreter.sh"
cd "$ROOT"
command -v "$PYTHON" >/dev/null || fail "$PYTHON was not found. Run bash scripts/quickstart.sh, or set COCOAMIX_PYTHON."
SHOTS=${SHOTS:-4}
TRAINER=${TRAINER:-CoCoAMix}
CFG=${CFG:-vit_b16_ep50}

# usage: run DIR DATASET SEED [arguments of train.py ...]
# A run that has results is skipped, unless sessions are left to do. Results of other settings are an error.
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
        "$PYTHON" -m cocoamix.finished "$dir" "$@" || status=$?
    fi
    case $status in
        0)
            echo "Skipped: $dir already has results."
            return
            ;;
        1) ;;
        *) exit "$status" ;; # its message has the reason
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
