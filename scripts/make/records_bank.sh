#!/usr/bin/env bash
# Makes the bank of the shipped task from the logged runs that split.json names for calibration.
set -euo pipefail
cd "$(dirname "$0")/../.."
. scripts/start/env.sh
environment demo ""
mapfile -t held_out < <(python -c 'import json; print(*json.load(open("scripts/make/records_runs/split.json"))["rank"], sep="\n")')
exec lm-eval-adaptive calibrate --task records_to_text --metric rougeL \
    --samples scripts/make/records_runs --exclude_model "${held_out[@]}" \
    --allow few_shot prompts --output tasks/records/records_to_text.bank.parquet --overwrite \
    --licence "answers of SmolLM2-135M-Instruct (Apache-2.0) and Gemma 3 270M (Gemma licence)"
