#!/usr/bin/env bash
# Set up and run the test suite.
#   run_scripts/test.sh [--quick] [pytest options]
# --quick leaves out the tests marked slow.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
VENV=$venv run_scripts/setup.sh test
options=()
if [ "${1:-}" = --quick ]; then
    options=(-m "not slow")
    shift
fi
export HF_HUB_OFFLINE=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
exec "$venv/bin/python" -m pytest "${options[@]}" "$@"
