#!/usr/bin/env bash
# Build the site into site/ and fail on any warning. `bash scripts/docs.sh serve` shows it on this machine instead.
#
# It uses a separate virtual environment (.venv-docs): building needs neither torch nor the package's dependencies, since
# the API page reads docstrings without importing anything.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/interpreter.sh"
cd "$ROOT"
venv=.venv-docs
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then # not there yet, or interrupted while it was made
    rm -rf "$venv"
    "$PYTHON" -m venv "$venv"
fi
if ! cmp -s requirements-docs.txt "$venv/installed.txt"; then
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements-docs.txt
    cp requirements-docs.txt "$venv/installed.txt"
fi
export NO_MKDOCS_2_WARNING=1 # an advertisement by the theme
if [ "${1:-build}" = serve ]; then
    exec "$venv/bin/python" -m mkdocs serve
fi
exec "$venv/bin/python" -m mkdocs build --strict --quiet
