# Sourced by the other scripts: sets ROOT, the top of the source tree, and PYTHON, the interpreter, which is
#   1. COCOAMIX_PYTHON, if it is set: a path, seen from the working directory, or a command;
#   2. .venv/bin/python of the tree, which `bash scripts/quickstart.sh` makes;
#   3. python or python3.
# scripts/environment.sh also makes .venv and installs what is missing. COCOAMIX_PYTHON is the only variable to set.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*" >&2; }
fail() { say "error: $*"; exit 1; }

if [ -n "${PYTHON:-}" ] && [ -z "${COCOAMIX_PYTHON:-}" ]; then
    say "PYTHON is $PYTHON, which the scripts do not read. Set COCOAMIX_PYTHON to choose the interpreter."
fi
export -n PYTHON # scripts that this one starts choose their own, without the message above

case "${COCOAMIX_PYTHON:-}" in
    */*) # absolute, because the scripts change to the tree
        if [ -d "$(dirname "$COCOAMIX_PYTHON")" ]; then
            COCOAMIX_PYTHON=$(cd "$(dirname "$COCOAMIX_PYTHON")" && pwd)/$(basename "$COCOAMIX_PYTHON")
            export COCOAMIX_PYTHON
        fi
        ;;
esac

if [ -n "${COCOAMIX_PYTHON:-}" ]; then
    PYTHON=$COCOAMIX_PYTHON
elif [ -x "$ROOT/.venv/bin/python" ]; then
    PYTHON=$ROOT/.venv/bin/python
else
    PYTHON=$(command -v python || command -v python3 || echo python)
fi
