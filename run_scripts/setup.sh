#!/usr/bin/env bash
# Make the virtual environment with torch and this package.
#   run_scripts/setup.sh EXTRA      EXTRA: demo, test or dev (pyproject.toml)
# VENV names the environment (.venv), PYTHON the interpreter it is made with (python3).
set -euo pipefail
cd "$(dirname "$0")/.."
extra=${1:?usage: run_scripts/setup.sh demo|test|dev}
venv=${VENV:-.venv}
python=${PYTHON:-python3}
torch=$(sed -n 's/^torch==//p' constraints.txt)
stamp="$venv/.installed-$extra"

if [ -e "$stamp" ] && [ "$stamp" -nt pyproject.toml ] && [ "$stamp" -nt constraints.txt ]; then
    exit 0
fi
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "setup: $("$python" --version) found, 3.11 or later needed; set PYTHON=python3.11" >&2
    exit 2
}
echo "setup: environment $venv"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip=("$venv/bin/python" -m pip --disable-pip-version-check --quiet)

has_torch() { "$venv/bin/python" -c "import torch, sys; sys.exit(torch.__version__.split('+')[0] != '$torch')" 2>/dev/null; }
if ! has_torch; then
    # PyPI's build for Linux brings several GB of CUDA; PyTorch's own index has a CPU build.
    "${pip[@]}" install --retries 0 --timeout 15 --index-url https://download.pytorch.org/whl/cpu \
        "torch==$torch" -c constraints.txt 2>/dev/null ||
        "${pip[@]}" install "torch==$torch" -c constraints.txt
fi
echo "setup: torch $("$venv/bin/python" -W ignore -c '
import torch
build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU"
print(torch.__version__, f"({build} build)")')"
"${pip[@]}" install -e ".[$extra]" -c constraints.txt
touch "$stamp"
