#!/usr/bin/env bash
# Runs every target for SECONDS, two at a time, from the committed corpus: `fuzz/run.sh 60`.
#
# Prints executions, edges and features reached for each. Exit status 1 if one found a fault; the input that shows it
# is then in fuzz/artifacts/TARGET/, and `fuzz/run.sh SECONDS TARGET...` runs some targets only.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
(($# >= 1)) || { echo "usage: fuzz/run.sh SECONDS [TARGET...]" >&2; exit 2; }
seconds=$1
# The same seed gives the same inputs in the same order: what one run finds another finds as well. 0 takes the clock.
seed=${QHCA_FUZZ_SEED:-7322}
shift
programs=$(./build.sh)
if (($# == 0)); then
    mapfile -t targets < <(cargo fuzz list --fuzz-dir .)
else
    targets=("$@")
fi

# run_one TARGET: finds are kept in work/, the committed corpus is only read.
run_one() {
    local name=$1
    mkdir -p "work/$name" "corpus/$name" "artifacts/$name"
    "$programs/$name" -seed="$seed" -max_total_time="$seconds" -print_final_stats=1 -rss_limit_mb=1024 -timeout=10 \
        -artifact_prefix="artifacts/$name/" "work/$name" "corpus/$name" >"work/$name.log" 2>&1
}

failed=0
for ((i = 0; i < ${#targets[@]}; i += 2)); do
    pids=()
    for name in "${targets[@]:i:2}"; do
        run_one "$name" &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid" || failed=1
    done
done

# tell TARGET: what a fault said, and the input that shows it, for a reader who has this output and nothing else.
tell() {
    local name=$1 input
    grep -aE -A3 "panicked at|ERROR: libFuzzer|SUMMARY" "work/$name.log" | grep -av '^--' | head -20 | sed "s/^/$name: /"
    for input in "artifacts/$name"/*; do
        [[ -f $input ]] && echo "$name: base64 of $(basename "$input"): $(base64 -w0 <"$input")"
    done
}

printf '%-12s %12s %8s %9s %8s  %s\n' target executions edges features corpus result
faulty=()
for name in "${targets[@]}"; do
    log="work/$name.log"
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    last=$(grep -aE '^#[0-9]+' "$log" | tail -1)
    edges=$(sed -nE 's/.* cov: ([0-9]+).*/\1/p' <<<"$last")
    features=$(sed -nE 's/.* ft: ([0-9]+).*/\1/p' <<<"$last")
    units=$(sed -nE 's/.* corp: ([0-9]+).*/\1/p' <<<"$last")
    result=clean
    if grep -aqE 'Test unit written|ERROR: libFuzzer' "$log"; then
        result="FAULT FOUND: $(grep -aoE 'Test unit written to .*' "$log" | tail -1)"
        failed=1
    elif [[ -z $executions ]]; then
        result="DID NOT RUN, see fuzz/$log"
        failed=1
    fi
    [[ $result == clean ]] || faulty+=("$name")
    printf '%-12s %12s %8s %9s %8s  %s\n' "$name" "${executions:--}" "${edges:--}" "${features:--}" "${units:--}" "$result"
done
for name in "${faulty[@]}"; do
    tell "$name" || true
done
exit "$failed"
