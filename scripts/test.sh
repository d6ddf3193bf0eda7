#!/usr/bin/env bash
# Run all tests, in the environment of scripts/environment.sh. Arguments go to pytest:
#   bash scripts/test.sh tests/test_prompts.py -k middle
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
exec "$PYTHON" -m pytest "$@"
