#!/usr/bin/env bash
# Training steps of whole models on a GPU: FAVOR+ against identity (what no attention can beat) and
# exact attention, by length at 65,536 tokens a step. Prints one table last; every figure, one JSON
# object a line: $OUT/models.jsonl. With bench/gpu.py's file as $KERNELS (default $OUT/gpu.json) the
# table sets `step - identity step` against layers x the attention's own time.
#   PERFORMER=build-cli/performer bench/gpu_models.sh
# Exact attention is torch's scaled_dot_product_attention; the table says which kernel it chose.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-build/gpu}
python=${PYTHON:-python3}
program=${PERFORMER:-build-cli/performer}
tokens=65536
exact_seconds=${EXACT_SECONDS:-90}   # for all steps of exact attention together
mkdir -p "$out"
results=$out/models.jsonl
: >"$results"
[[ -x $program ]] || { echo "bench/gpu_models.sh: no program at $program: set PERFORMER" >&2; exit 1; }

note() {  # model system length text
  printf '{"model": "%s", "system": "%s", "length": %d, "note": "%s"}\n' "$@" >>"$results"
  echo "$1, $2, $3: $4"
}

# measure MODEL RECIPE CAUSAL SYSTEM LENGTH ROWS STEPS LIMIT [FLAGS]; exits as the program does
measure() {
  local model=$1 recipe=$2 causal=$3 system=$4 length=$5 rows=$6 steps=$7 limit=$8 answer status
  local more=() backend
  [[ $system == exact ]] && more=(--profile)
  shift 8
  answer=$(timeout "$limit" "$program" bench model "$recipe" --json --device cuda --steps "$steps" \
    --set "model.attention.kind=$system" --set "model.causal=$causal" \
    --set "data.objective=$([[ $causal == true ]] && echo causal || echo masked)" \
    --set "data.length=$length" --set "model.max_length=$length" --set "train.batch=$rows" \
    --set train.precision=bf16 "${more[@]}" "$@" 2>"$out/models.err")
  status=$?
  if ((status == 0)); then
    backend=$(grep -o '_scaled_dot_product_[a-z_]*attention' "$out/models.err" | head -n 1)
    printf '{"model": "%s", "system": "%s", "causal": %s, "backend": "%s", "figures": %s}\n' \
      "$model" "$system" "$causal" "${backend#_scaled_dot_product_}" "$answer" >>"$results"
    echo "$model, $system, $length x $rows: $answer"
  elif ((status == 124)); then
    note "$model" "$system" "$length" "not within $limit s"
  else
    note "$model" "$system" "$length" "exit $status: $(tail -n 1 "$out/models.err" | tr -d '"\\' | cut -c 1-90)"
  fi
  return "$status"
}

# model NAME RECIPE CAUSAL STEPS LENGTHS...
model() {
  local name=$1 recipe=$2 causal=$3 steps=$4 length begin
  shift 4
  for length in "$@"; do
    measure "$name" "$recipe" "$causal" identity "$length" $((tokens / length)) "$steps" 30
    measure "$name" "$recipe" "$causal" favor "$length" $((tokens / length)) "$steps" 40
  done
  for length in "$@"; do   # time grows with the length: the rest is left out once it is spent
    if ((exact_left < 5)); then
      note "$name" exact "$length" "not run: exact attention had its $exact_seconds s"
      continue
    fi
    begin=$SECONDS
    measure "$name" "$recipe" "$causal" exact "$length" $((tokens / length)) 3 "$exact_left"
    exact_left=$((exact_left - SECONDS + begin))
  done
}

# longest NAME RECIPE CAUSAL SYSTEM LIMIT [FLAGS]: doubles one sequence until it does not fit.
# Learned positions would be most of the model.
longest() {
  local name=$1 recipe=$2 causal=$3 system=$4 limit=$5 length=131072
  shift 5
  while ((length <= 2097152)); do
    measure "$name" "$recipe" "$causal" "$system" "$length" 1 1 "$limit" \
      --set model.positions=sinusoidal "$@" || return 0
    length=$((length * 2))
  done
}

read -ra lengths <<<"${LENGTHS:-1024 4096 16384 65536}"
regular="(8, 6, 2048, 512)" protein="(8, 36, 1024, 512), causal"
exact_left=$((exact_seconds / 3))
model "$regular" configs/bench/regular.toml false 10 "${lengths[@]}"
exact_left=$((exact_left + exact_seconds - exact_seconds / 3))
model "$protein" configs/bench/protein36.toml true 5 "${lengths[@]}"
longest "$regular, one sequence" configs/bench/regular.toml false favor 30
longest "$protein, one sequence" configs/bench/protein36.toml true favor 30
rm -f "$out/models.err"
"$python" bench/on_gpu/models.py "$results" "${KERNELS:-$out/gpu.json}"
