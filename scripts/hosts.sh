#!/usr/bin/env bash
# Runs the contract tests (what is asked of the harness) on other versions of it and of Python, and
# says in one line what else could be installed.
#
#   bash scripts/hosts.sh          the lowest supported harness, on this Python; the newest release,
#                                  if it is not the one that is installed
#   bash scripts/hosts.sh --all    lowest and highest harness on each Python from 3.10 to 3.13 that
#                                  this machine has (an environment each; uv makes them quickly)
#
# Called within an environment that has the development packages, as scripts/test.sh does. What
# cannot be installed is said and skipped; a test that fails ends with its exit code.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
# Both ends of what pyproject.toml supports, as far as it is released.
lowest=0.4.12
highest=0.4.13
cache="$root/.venv-hosts"
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1

contract() { # PYTHON: its contract tests, in a place of their own
    "$1" -m pytest -m "contract and not slow" -q -p no:cacheprovider --durations=0 --durations-min=30 tests
}

overlay() { # VERSION: the harness alone, beside this environment's other packages
    local place="$cache/lm_eval-$1"
    [ -d "$place/lm_eval" ] || python -m pip install --quiet --disable-pip-version-check \
        --no-deps --target "$place" "lm_eval==$1" 2>/dev/null || {
        echo "hosts: lm_eval $1 cannot be installed here; skipped"
        rm -rf "$place"
        return 0
    }
    echo "hosts: lm_eval $1, $(python --version)"
    PYTHONPATH="$place:$root${PYTHONPATH:+:$PYTHONPATH}" contract python
}

pythons() { # every Python from 3.10 to 3.13 on this machine, one of a version
    local version path
    for version in 3.10 3.11 3.12 3.13; do
        for path in "$(command -v "python$version" || true)" \
            "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version"*/bin/python; do
            if [ -x "$path" ] && "$path" -c '' 2>/dev/null; then
                echo "$version=$path"
                break
            fi
        done
    done
}

whole() { # VERSION=PATH HARNESS: an environment of its own
    local version=${1%%=*} path=${1#*=} place
    place="$cache/python$version-lm_eval-$2"
    if [ ! -f "$place/.installed" ]; then
        rm -rf "$place"
        local wanted=("$root" "lm_eval[api]==$2" pytest pytest-timeout hypothesis "textstat<0.7.9")
        if command -v uv >/dev/null; then
            uv venv --quiet --python "$path" "$place" &&
                uv pip install --quiet --python "$place/bin/python" "${wanted[@]}"
        else
            "$path" -m venv "$place" &&
                "$place/bin/python" -m pip install --quiet --disable-pip-version-check "${wanted[@]}"
        fi || {
            echo "hosts: Python $version with lm_eval $2 cannot be installed here; skipped"
            return 0
        }
        touch "$place/.installed"
    fi
    echo "hosts: lm_eval $2, Python $version"
    PYTHONPATH="$root" contract "$place/bin/python"
}

installed=$(python -c 'from importlib.metadata import version; print(version("lm_eval"))')
released=$(python -m pip index versions lm_eval --disable-pip-version-check 2>/dev/null |
    sed -n 's/^Available versions: //p' | tr -d ' ' | tr ',' '\n' | sort -V |
    sed -n "/^${lowest//./\\.}\$/,\$p" | xargs || true)
found=$(pythons)
echo "hosts: installed lm_eval $installed; released since: ${released:-not to be learnt here};" \
    "Pythons: $(cut -d= -f1 <<<"$found" | xargs)"
if [ "${1:-}" = --all ]; then
    for each in $found; do
        for harness in "$lowest" "$highest"; do
            whole "$each" "$harness"
        done
    done
    exit
fi
for harness in "$lowest" "$highest"; do
    # The one that is installed is what all other tests run on.
    [ "$harness" = "$installed" ] || overlay "$harness"
done
