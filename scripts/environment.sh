# Sourced by the other scripts: makes $PYTHON an interpreter that has everything, and says what it does.
#
# By default that is a virtual environment in the tree (.venv) with the pinned set of requirements.txt, made once.
# COCOAMIX_PYTHON=/path/to/python uses an interpreter that you already have, with its own torch: only packages
# that it lacks are installed there, and never torch or torchvision.

case "${COCOAMIX_PYTHON:-}" in
    */*)
        if [ -d "$(dirname "$COCOAMIX_PYTHON")" ]; then # seen from where it was given
            COCOAMIX_PYTHON=$(cd "$(dirname "$COCOAMIX_PYTHON")" && pwd)/$(basename "$COCOAMIX_PYTHON")
        fi
        ;;
esac
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$ROOT" || exit 1

say() { printf '%s\n' "$*" >&2; }
fail() { say "error: $*"; exit 1; }

python_is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null
}

find_python() {
    local candidate
    for candidate in python3 python3.12 python3.11 python3.10 python3.13 python; do
        if command -v "$candidate" >/dev/null 2>&1 && python_is_new_enough "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

use_own_environment() {
    local venv="$ROOT/.venv" base stamp wanted log
    log="$venv/install.log"
    if [ -d "$venv" ] && ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        say "The virtual environment .venv does not work (was it moved, or its making interrupted?); making it anew."
        rm -rf "$venv"
    fi
    if [ ! -x "$venv/bin/python" ]; then
        base=$(find_python) || fail "Python 3.10 or newer was not found. Install it, or name one with COCOAMIX_PYTHON."
        say "Making a virtual environment in .venv ($("$base" --version 2>&1))"
        "$base" -m venv "$venv" || fail "the virtual environment could not be made (on Debian: apt install python3-venv)."
    fi
    PYTHON="$venv/bin/python"
    stamp="$venv/.installed"
    wanted=$("$PYTHON" -c 'import hashlib, sys; print(sys.version, hashlib.sha256(open("requirements.txt", "rb").read()).hexdigest())')
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
        return
    fi
    say "Installing the pinned packages of requirements.txt into .venv (once; this can take some minutes)"
    if ! "$PYTHON" -m pip install --disable-pip-version-check -r requirements.txt >"$log" 2>&1; then
        tail -n 15 "$log" >&2
        fail "the installation failed, as pip says above; its whole log is .venv/install.log."
    fi
    printf '%s\n' "$wanted" >"$stamp"
}

use_given_python() {
    PYTHON=$COCOAMIX_PYTHON
    "$PYTHON" -c 'import sys' 2>/dev/null || fail "COCOAMIX_PYTHON is $PYTHON, which does not run."
    python_is_new_enough "$PYTHON" || fail "COCOAMIX_PYTHON is $("$PYTHON" --version 2>&1); 3.10 or newer is needed."
    "$PYTHON" scripts/missing_packages.py --check-torch || exit 1
    local missing
    missing=$("$PYTHON" scripts/missing_packages.py) || exit 1
    [ -n "$missing" ] || return 0
    say "Installing into the environment of $PYTHON what it lacks:" $missing
    # Its torch and torchvision are held where they are.
    local hold
    hold=$(mktemp) || fail "no temporary file can be made."
    "$PYTHON" scripts/missing_packages.py --hold >"$hold"
    # shellcheck disable=SC2086  # a list of names
    if ! "$PYTHON" -m pip install --quiet --disable-pip-version-check -c "$hold" $missing; then
        rm -f "$hold"
        fail "the installation failed, as pip says above."
    fi
    rm -f "$hold"
}

prepare() {
    if [ -n "${COCOAMIX_PYTHON:-}" ]; then use_given_python; else use_own_environment; fi
}

# Two scripts started at once must not install into one environment at once.
if command -v flock >/dev/null 2>&1; then
    exec 9>"$ROOT/.environment.lock"
    flock 9
    prepare 9>&-
    flock -u 9
    exec 9>&-
else
    prepare
fi
export PYTHON
