#!/usr/bin/env bash
# Makes an environment and passes the tests: style, types, floors, declared dependencies, dead code, then
# pytest; first its contract tests on the other supported versions of the harness. Arguments go to
# pytest.
#
#   bash scripts/test.sh              everything that needs no real weights
#   bash scripts/test.sh tests/core   a part
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/start/env.sh
environment test dev
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1
ruff check .
ruff format --check .
mypy
lint-imports
deptry --no-ansi .
vulture
[ $# -gt 0 ] || bash scripts/hosts.sh
# Two processes even on one core: much of the time is other programs starting.
exec python -m pytest -n "${LMEVAL_ADAPTIVE_TEST_JOBS:-2}" "$@"
