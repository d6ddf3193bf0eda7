#!/usr/bin/env bash
# Run the tests in the environment of scripts/environment.sh. Arguments go to pytest:
#   bash scripts/test.sh                  # all but those marked slow, on all cores
#   bash scripts/test.sh -m fast          # the unit tests: no training, no other processes; under a minute
#   bash scripts/test.sh tests/prompts/test_context.py -k middle
# Tests are spread over all cores unless the arguments name a file or folder, or have -n, --pdb or --collect-only.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
# Many tests start an interpreter, which would compile the package again each time.
unset PYTHONDONTWRITEBYTECODE
# The weights of models are allocated and freed again and again: keep the memory (glibc).
export MALLOC_MMAP_THRESHOLD_=4000000000 MALLOC_TRIM_THRESHOLD_=8000000000
# At most eight workers, since each holds models in memory.
workers=(-n auto --maxprocesses 8 --dist worksteal)
for argument in "$@"; do
    case $argument in
        -n* | --numprocesses* | --pdb | --collect-only | --co) workers=() ;;
        *) if [ -e "${argument%%::*}" ]; then workers=(); fi ;;
    esac
done
exec "$PYTHON" -m pytest ${workers[@]+"${workers[@]}"} "$@"
