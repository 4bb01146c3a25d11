#!/usr/bin/env bash
# All that CI runs, step by step. Each step writes build/logs/<step>.log; the last line counts tests.
# A step that has passed is not run again until a file of the tree, or the environment, has changed.
#
# usage: test.sh [all]     all: every CUDA architecture, every instruction set under the sanitizers
set -uo pipefail
cd "$(dirname "$0")/.."

scope=${1:-}
logs=build/logs
reports=build/reports
passed=build/passed
jobs=$(nproc)
failed=()
started=$SECONDS

# Shows that a long step is alive: the last line of its log, in place on a terminal, else now and then.
watch_step() {
  local pid=$1 log=$2 ticks=0
  while kill -0 "$pid" 2>/dev/null; do
    if [[ -t 1 ]]; then
      printf '\r\033[K  %s' "$(tail -n 1 "$log" | cut -c -90)"
    elif ((++ticks % 30 == 0)); then
      printf '  … %4d s  %s\n' "$ticks" "$(tail -n 1 "$log" | cut -c -90)"
    fi
    sleep 1
  done
  [[ -t 1 ]] && printf '\r\033[K'
}

# Of all that a step depends on: every file that git tracks or would track, tools, what is installed
# in .venv, variables, the processor. Nothing where git cannot list the files: then all steps run.
hash_tree() {
  local names=(git ls-files -z --cached --others --exclude-standard)
  (($("${names[@]}" 2>/dev/null | wc -c))) || return 0
  { echo "$scope" "$(nproc)"
    "${names[@]}" | sort -z | xargs -0 sha256sum
    "${names[@]}" | sort -z | xargs -0 stat -c '%a %n'
    cat .venv/*.installed .venv/lib/python*/site-packages/torch/version.py
    env | grep -E '^(PERFORMER|OMP|GOMP|MKL|TORCH|CXX|CC|CUDA)' | sort
    for tool in c++ cmake clang-tidy clang-format nvcc python3; do $tool --version; done
    grep -m1 '^flags' /proc/cpuinfo
    grep -E '^(CMAKE_BUILD_TYPE|PERFORMER_)' build/CMakeCache.txt
  } 2>/dev/null | sha256sum
}

# step NAME COMMAND...: runs it, says how it went and how long it took.
step() {
  local name=$1 log=$logs/$1.log begin=$SECONDS status=0
  shift
  if [[ $name != build* && -n $tree && $(cat "$passed/$name" 2>/dev/null) == "$tree" ]]; then
    printf '%-18s ok      passed before, and nothing has changed since\n' "$name"
    mv "$reports.before/$name" "$reports.before/$name.xml" "$reports" 2>/dev/null
    return 0
  fi
  rm -f "$passed/$name"
  [[ -t 1 ]] || printf '%s …\n' "$name"
  "$@" >"$log" 2>&1 &
  local pid=$!
  watch_step "$pid" "$log"
  wait "$pid" || status=$?
  if ((status == 0)); then
    printf '%-18s ok      %4d s\n' "$name" $((SECONDS - begin))
    # Only if no file has changed meanwhile.
    [[ -z $tree || $(hash_tree) != "$tree" ]] || echo "$tree" >"$passed/$name"
  else
    printf '%-18s FAILED  %4d s, the end of %s:\n' "$name" $((SECONDS - begin)) "$log"
    tail -n 40 "$log" | sed 's/^/  | /'
    failed+=("$name")
  fi
  return "$status"
}

# What follows cannot run without this step.
need() { step "$@" || finish; }

finish() {
  local name
  for name in "${failed[@]}"; do echo "failed step: $name, see $logs/$name.log"; done
  echo "took $((SECONDS - started)) s"
  python3 scripts/count_tests.py "$reports" "${failed[@]}"
  exit $((${#failed[@]} > 0))
}

build_preset() {
  local folder=$1 preset=$2
  shift 2
  (($# == 0)) && [[ $folder/build.ninja -nt CMakePresets.json ]] || cmake --preset "$preset" "$@" || return
  cmake --build --preset "$preset" --parallel "$jobs"
}

# One CTest entry is one program; its report names every test inside.
run_ctest() {
  local step=$1 preset=$2
  shift 2
  GTEST_OUTPUT="xml:$PWD/$reports/$step/" ctest --preset "$preset" --no-tests=error "$@"
}

# Files of tests side by side: idle threads must not spin.
run_pytest() {
  local step=$1 folder=$2
  OMP_WAIT_POLICY=passive .venv/bin/python -m pytest "$folder" --numprocesses "$jobs" \
    --dist loadfile --junitxml="$reports/$step.xml"
}

run_sanitized() {
  # Two programs at a time, each with two threads: idle threads must not spin.
  export OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive
  run_ctest tests-sanitize sanitize --parallel "$jobs"
}

# Reports of an earlier run count only for steps that need no other.
mkdir -p "$logs" "$passed"
rm -rf "$reports.before"
[[ ! -d $reports ]] || mv "$reports" "$reports.before"
mkdir -p "$reports"

tree=  # not known before the environment is
need setup scripts/setup.sh tests
tree=$(hash_tree)
step lint scripts/lint.sh check
if command -v nvcc >/dev/null; then
  step nvcc .venv/bin/python scripts/nvcc.py build ${scope:+--all}
else
  printf '%-18s SKIPPED: no nvcc on PATH, the CUDA kernels were not compiled\n' nvcc
fi
need build build_preset build release
tree=$(hash_tree)  # with the settings of the build, which are known from here on
step symbols python3 scripts/check_symbols.py build
step tests-cpp run_ctest tests-cpp release --parallel "$jobs"
step tests-python run_pytest tests-python tests/python
step tests-cli run_pytest tests-cli tests/cli
step tests-attack run_pytest tests-attack tests/attack
step tests-install run_pytest tests-install tests/install
step tidy .venv/bin/python scripts/tidy.py build
step build-sanitize build_preset build-sanitize sanitize \
  "-DPERFORMER_TEST_ALL_PATHS=$([[ $scope == all ]] && echo ON || echo OFF)" &&
  step tests-sanitize run_sanitized
finish
