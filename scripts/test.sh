#!/usr/bin/env bash
# Run all tests on the machine's cores, in the environment of scripts/environment.sh. With arguments, run pytest with them:
#   bash scripts/test.sh tests/prompts/test_context.py -k middle
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
# At most eight workers, because each keeps models in memory.
[ $# -gt 0 ] || set -- -n auto --maxprocesses 8 --dist worksteal
exec "$PYTHON" -m pytest "$@"
