#!/usr/bin/env bash
# attack.sh [PART...]: the long form of the attacks in tests/attack and tests/fuzz, and a table of
# what they found. Parts: kills damage hostile headers calls fuzz; default all, about three hours.
# Failures name what to run again; logs lie in build/attack.
set -uo pipefail
cd "$(dirname "$0")/.."

export PERFORMER_KILLS=${PERFORMER_KILLS:-50}       # of each of six kinds
export PERFORMER_DAMAGES=${PERFORMER_DAMAGES:-1000} # damaged files of a run
export PERFORMER_HOSTILE=${PERFORMER_HOSTILE:-560}  # files made to hurt
export PERFORMER_BOMB=${PERFORMER_BOMB:-10240}      # megabytes that one gzip member unpacks to
export PERFORMER_HEADERS=${PERFORMER_HEADERS:-100000} # of safetensors files, beside the package
export PERFORMER_CALLS=${PERFORMER_CALLS:-100000}   # of operators, under the sanitizers
fuzz_seconds=${PERFORMER_FUZZ_SECONDS:-600}         # of processor time, for each format
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive

logs=build/attack
mkdir -p "$logs"
failed=0

run_pytest() { .venv/bin/python -m pytest "tests/attack/test_$1.py" --basetemp="$PWD/$logs/tmp-$1"; }

# Of trainings, of embed and of convert.
run_kills() {
  run_pytest kills && run_pytest interrupted_work
}

run_calls() {
  [[ -e build-sanitize/build.ninja ]] || cmake --preset sanitize || return
  cmake --build build-sanitize --target operator_calls_test && build-sanitize/tests/operator_calls_test
}

# row NAME COUNT COMMAND...: runs it and prints a line of the table.
row() {
  local name=$1 count=$2 begin=$SECONDS result=ok log=$logs/$1.log
  shift 2
  "$@" >"$log" 2>&1 || {
    result="FAILED, see $log"
    failed=1
  }
  printf '%-8s %22s %7d s  %s\n' "$name" "$count" $((SECONDS - begin)) "$result"
}

parts=("$@")
((${#parts[@]})) || parts=(kills damage hostile headers calls fuzz)
printf '%-8s %22s %9s  %s\n' attack count time result
for part in "${parts[@]}"; do
  case $part in
    kills) row kills "$((6 * PERFORMER_KILLS)) kills" run_kills ;;
    damage) row damage "$PERFORMER_DAMAGES files" run_pytest damage ;;
    hostile) row hostile "$PERFORMER_HOSTILE files" run_pytest hostile ;;
    headers) row headers "$PERFORMER_HEADERS headers" run_pytest safetensors ;;
    calls) row calls "$PERFORMER_CALLS calls" run_calls ;;
    fuzz) row fuzz "9 formats, $fuzz_seconds s each" scripts/fuzz.sh "$fuzz_seconds" ;;
    *)
      echo "attack.sh: unknown part '$part'; parts are kills damage hostile headers calls fuzz" >&2
      exit 2
      ;;
  esac
done
exit "$failed"
