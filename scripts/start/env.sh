# Sourced by the shell scripts: one virtual environment per purpose, made once and reused.
#
#   environment NAME EXTRAS   makes .venv-NAME with this checkout and the extras, and activates it
#
# LMEVAL_ADAPTIVE_VENV=DIR uses an environment of your own instead. PYTHON chooses the interpreter.

environment() {
    local root dir stamp
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
    if [ -n "${LMEVAL_ADAPTIVE_VENV:-}" ]; then
        # shellcheck disable=SC1091
        . "$LMEVAL_ADAPTIVE_VENV/bin/activate"
        return
    fi
    dir="$root/.venv-$1"
    stamp="$dir/.installed"
    if [ ! -x "$dir/bin/python" ]; then
        "${PYTHON:-python3}" -m venv "$dir" || {
            echo "could not make a virtual environment in $dir; on Debian: apt-get install python3-venv" >&2
            return 1
        }
    fi
    # shellcheck disable=SC1091
    . "$dir/bin/activate"
    if [ "$root/pyproject.toml" -nt "$stamp" ]; then
        echo "installing lm-eval-adaptive${2:+[$2]} into $dir" >&2
        python -m pip install --quiet --disable-pip-version-check -e "$root${2:+[$2]}" || return 1
        touch "$stamp"
    fi
}
