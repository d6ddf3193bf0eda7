# Sourced by the other scripts: makes $PYTHON an interpreter that has every package, and reports what it installs.
#
# By default that is a virtual environment in the tree (.venv), made once, with the pinned packages of requirements.txt and
# the command `cocoamix` of this tree. With COCOAMIX_PYTHON=/path/to/python it is an interpreter that you already have, with
# its own torch: only packages that it lacks are installed there, and never torch or torchvision.
source "$(dirname "${BASH_SOURCE[0]}")/interpreter.sh"
cd "$ROOT" || exit 1

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
    local venv="$ROOT/.venv" base stamp wanted
    if [ -d "$venv" ] && ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        say "The virtual environment .venv does not work (it was moved, or its creation was interrupted); creating a new one."
        rm -rf "$venv"
    fi
    if [ ! -x "$venv/bin/python" ]; then
        base=$(find_python) || fail "Python 3.10 or newer was not found. Install it, or name one with COCOAMIX_PYTHON."
        say "Creating a virtual environment in .venv ($("$base" --version 2>&1))"
        "$base" -m venv "$venv" || fail "the virtual environment could not be created (on Debian: apt install python3-venv)."
    fi
    PYTHON="$venv/bin/python"
    stamp="$venv/.installed"
    wanted=$("$PYTHON" scripts/missing_packages.py --stamp)
    if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$wanted" ]; then
        say "Installing the pinned packages of requirements.txt into .venv (once; this can take a few minutes)"
        rm -f "$stamp"
        # First rewrite the activate scripts, which name the old folder if the tree was moved or copied.
        into_own_environment -m venv --without-pip "$venv"
        into_own_environment -m pip install --disable-pip-version-check -r requirements.txt
    fi
    if [ ! -f "$stamp" ] || ! (cd / && "$venv/bin/cocoamix" --version) >/dev/null 2>&1; then
        into_own_environment -m pip install --disable-pip-version-check --no-deps --no-build-isolation -e .
        say "\`source .venv/bin/activate\` gives you the commands python and cocoamix of this tree."
    fi
    printf '%s\n' "$wanted" >"$stamp"
}

into_own_environment() { # usage: into_own_environment ARGUMENTS-OF-PYTHON; its output goes to a log
    if ! "$PYTHON" "$@" >"$ROOT/.venv/install.log" 2>&1; then
        tail -n 15 "$ROOT/.venv/install.log" >&2
        fail "the installation failed; the message is above and the whole log is .venv/install.log."
    fi
}

use_given_python() {
    PYTHON=$COCOAMIX_PYTHON
    "$PYTHON" -c 'import sys' 2>/dev/null || fail "COCOAMIX_PYTHON is $PYTHON, which does not run."
    python_is_new_enough "$PYTHON" || fail "COCOAMIX_PYTHON is $("$PYTHON" --version 2>&1); 3.10 or newer is needed."
    "$PYTHON" scripts/missing_packages.py --check-torch || exit 1
    local missing
    missing=$("$PYTHON" scripts/missing_packages.py) || exit 1
    [ -n "$missing" ] || return 0
    say "Installing the packages that $PYTHON lacks:" $missing
    # Keep the versions of its torch and torchvision.
    local hold
    hold=$(mktemp) || fail "no temporary file can be created."
    "$PYTHON" scripts/missing_packages.py --hold >"$hold"
    # shellcheck disable=SC2086  # a list of names
    if ! "$PYTHON" -m pip install --quiet --disable-pip-version-check -c "$hold" $missing; then
        rm -f "$hold"
        fail "the installation failed; pip's message is above."
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
