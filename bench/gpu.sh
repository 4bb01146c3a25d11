#!/usr/bin/env bash
# On a machine with an NVIDIA GPU, nvcc and a CUDA torch: builds the operators, runs tests/gpu and the
# benches of operators. Logs, pages and figures go to $OUT (build/gpu).
#   bench/gpu.sh            everything, under 9 minutes
#   bench/gpu.sh bench      the benches alone, 3 minutes
set -uo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-build/gpu}
python=${PYTHON:-python3}
folder=build/gpu-ops   # not the folder of `make`: operators alone
status=0
mkdir -p "$out" "$folder"
export PERFORMER_LIBRARY=$PWD/$folder/libperformer.so
export PYTHONPATH=$PWD/python${PYTHONPATH:+:$PYTHONPATH}

build() {
  cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPERFORMER_OPS_ONLY=ON \
    -DPERFORMER_CUDA=ON -DPERFORMER_CUDA_ARCHITECTURES="${PERFORMER_CUDA_ARCHITECTURES:-native}" \
    -DPython_EXECUTABLE="$(command -v "$python")" &&
    cmake --build "$folder" --target performer
}

# measure SECONDS NAME: its figures and its page; rows appear as they come.
measure() {
  timeout "$1" "$python" "bench/$2.py" --device cuda --json --out "$out/$2.md" >"$out/$2.json" ||
    status=$?
  cat "$out/$2.md"
}

if [[ ${1:-all} == all ]]; then
  build >"$out/build.log" 2>&1 || { tail -n 20 "$out/build.log"; exit 1; }
  echo "built: $out/build.log"
  timeout 270 "$python" -m pytest -o addopts= -q --tb=line tests/gpu >"$out/tests.log" 2>&1 ||
    status=$?
  echo "tests: $(tail -n 1 "$out/tests.log")   ($out/tests.log)"
fi
rm -f "$out"/{decode,attention}.{md,json}
measure 60 decode
measure 140 attention
exit "$status"
