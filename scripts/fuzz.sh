#!/usr/bin/env bash
# fuzz.sh [SECONDS [TARGET...]]: runs each fuzz target for SECONDS (default 60) of processor time,
# one after the other. What is found lies in build-fuzz/findings; new inputs in build-fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift || true
targets=("$@")
((${#targets[@]})) || targets=(fasta hf json pds png pretrained safetensors toml tsv)

[[ build-fuzz/build.ninja -nt CMakePresets.json ]] || cmake --preset fuzz >build-fuzz.log || {
  cat build-fuzz.log
  exit 1
}
rm -f build-fuzz.log
cmake --build build-fuzz --parallel "$(nproc)"

findings=$PWD/build-fuzz/findings
mkdir -p "$findings"
failed=0
printf '%-12s %14s %9s %7s  %s\n' target runs cpu/s corpus result
for target in "${targets[@]}"; do
  program=build-fuzz/tests/fuzz/${target}_fuzz
  corpus=build-fuzz/corpus/$target log=build-fuzz/$target.log
  mkdir -p "$corpus"
  result=ok
  # The limit is the kernel's, on processor time: other work on the machine takes none away.
  # Inputs stay small, 10 s for one of them is a hang, and memory is bounded.
  status=0
  (
    ulimit -S -t "$seconds"
    "$program" "$corpus" "tests/fuzz/corpus/$target" -max_len=8192 -timeout=10 -seed=1 \
      -rss_limit_mb=2048 -malloc_limit_mb=1024 -dict=tests/fuzz/tokens.dict \
      -artifact_prefix="$findings/$target-" || exit $?
  ) >"$log" 2>&1 || status=$?
  # 152: SIGXCPU, the end of its time.
  if ((status != 152)); then
    result="FAILED ($status), see $log"
    failed=1
  fi
  runs=$(grep -oE '^#[0-9]+' "$log" | tail -n 1 | tr -d '#') || true  # none where it fails at once
  printf '%-12s %14s %9s %7s  %s\n' "$target" "${runs:-0}" "$seconds" "$(ls "$corpus" | wc -l)" "$result"
done
exit "$failed"
