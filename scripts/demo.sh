#!/usr/bin/env bash
# Ranks real models on the shipped task without a GPU or a network: their recorded answers are
# replayed through the real harness, and each model is asked a part of the documents only.
#
#   bash scripts/demo.sh [OPTIONS of lm-eval-adaptive run --adaptive]
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/start/env.sh
environment demo ""
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1

models=()
for name in $(python -c 'import json; print(*json.load(open("scripts/make/records_runs/split.json"))["rank"])'); do
    models+=(--model replay --model_args "samples=scripts/make/records_runs/$name" --model_name "$name")
done
output="demo_output/$(date +%Y-%m-%dT%H-%M-%S)"
exec lm-eval-adaptive run --adaptive --tasks records_to_text "${models[@]}" \
    --output_path "$output" "$@"
