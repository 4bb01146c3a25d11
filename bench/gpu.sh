#!/usr/bin/env bash
# On a machine with an NVIDIA GPU, nvcc and a CUDA torch: builds the operators, runs tests/gpu, and
# prints one table of speed against fused softmax attention and other linear kernels. Full figures:
# $OUT/gpu.json. Peers that are not installed are named in the table.
#   bench/gpu.sh            everything, under 9 minutes
#   bench/gpu.sh bench      the table alone, 100 seconds
set -uo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-build/gpu}
python=${PYTHON:-python3}
folder=build/gpu-ops   # not the folder of `make`: operators alone
status=0
mkdir -p "$out" "$folder"
export PERFORMER_LIBRARY=$PWD/$folder/libperformer.so
export PYTHONPATH=python${PYTHONPATH:+:$PYTHONPATH}

build() {
  cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPERFORMER_OPS_ONLY=ON \
    -DPERFORMER_CUDA=ON -DPERFORMER_CUDA_ARCHITECTURES="${PERFORMER_CUDA_ARCHITECTURES:-native}" \
    -DPython_EXECUTABLE="$(command -v "$python")" &&
    cmake --build "$folder" --target performer
}

if [[ ${1:-all} == all ]]; then
  build >"$out/build.log" 2>&1 || { tail -n 20 "$out/build.log"; exit 1; }
  echo "built: $out/build.log"
  timeout 270 "$python" -m pytest -o addopts= -q --tb=line tests/gpu >"$out/tests.log" 2>&1 ||
    status=$?
  echo "tests: $(tail -n 1 "$out/tests.log")   ($out/tests.log)"
fi
if [[ -f bench/decode.py ]]; then
  timeout 60 "$python" bench/decode.py --json "$out/decode.json" >"$out/decode.txt" 2>&1 ||
    status=$?
  cat "$out/decode.txt"
fi
timeout 130 "$python" bench/gpu.py --json "$out/gpu.json" >"$out/bench.txt" 2>&1 ||
  { status=$?; tail -n 5 "$out/bench.txt"; }
sed -n '/^$/,$p' "$out/bench.txt"   # the table alone; rows as they came: bench.txt
exit "$status"
