#!/usr/bin/env bash
# From what MLPerf publishes for BERT to sorted training and evaluation samples.
#   run_scripts/prepare_data.sh DOWNLOADS OUTPUT [options of `python -m dataprep run`]
# DOWNLOADS holds, at any depth: vocab.txt; the 500 text parts and eval.txt (the official samples),
# or else the Wikipedia dump; and the TF1 checkpoint, if it is to be checked too. Sizes and md5s are
# compared with the published ones. The expected time, disk and memory are printed first, and
# CHECK_ONLY=1 stops there. Run again after an interruption, it goes on where it stopped.
# WORKERS: processes at once (all cores).
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -lt 2 ]; then
    echo "usage: run_scripts/prepare_data.sh DOWNLOADS OUTPUT [options of python -m dataprep run]" >&2
    exit 2
fi
downloads=$1 output=$2
shift 2
workers=${WORKERS:-$(nproc)}
venv=${VENV:-.venv}
VENV=$venv run_scripts/setup.sh demo
python=$venv/bin/python

"$python" -m dataprep official "$downloads" --workers "$workers" --output "$output"
if [ -n "${CHECK_ONLY:-}" ]; then
    exit 0
fi
"$python" -m dataprep run --config "$output/run.yaml" --engine.workers "$workers" "$@"
"$python" -m dataprep verify "$output/train" --samples "$output/samples/train"
"$python" -m dataprep verify "$output/evaluation" --samples "$output/samples/evaluation"
