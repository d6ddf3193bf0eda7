#!/usr/bin/env bash
# Make the environment once, train and evaluate on the synthetic datasets, and print a table.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
exec "$PYTHON" -m cocoamix bench run quick "$@"
