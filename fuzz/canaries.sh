#!/usr/bin/env bash
# Proves that every target still sees: each must find the fault planted under `--cfg canary` within SECONDS (60 unless
# given), starting from the committed corpus, and the input that shows it must pass without the planted fault.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
seconds=${1:-60}
programs=$(./build.sh)
with_canary=$(./build.sh canary)
mapfile -t targets < <(cargo fuzz list --fuzz-dir .)

# hunt TARGET: status 0 when the planted fault was found and is only the planted one.
hunt() {
    local name=$1 begun=$SECONDS nest found
    nest=$(mktemp -d)
    mkdir -p "corpus/$name"
    "$with_canary/$name" -max_total_time="$seconds" -artifact_prefix="$nest/" "$nest" "corpus/$name" \
        >"$nest/log" 2>&1 || true
    found=$(find "$nest" -name 'crash-*' | head -1)
    if [[ -z $found ]]; then
        echo "$name: planted fault NOT found in $seconds s: $(grep -aE '^#' "$nest/log" | tail -1)"
        return 1
    elif ! "$programs/$name" "$found" >"$nest/again" 2>&1; then
        echo "$name: this is no planted fault: $(grep -a panicked -A1 "$nest/again" | tr '\n' ' ')"
        return 1
    fi
    echo "$name: planted fault found in $((SECONDS - begun)) s"
    rm -rf "$nest"
}

failed=0
for ((i = 0; i < ${#targets[@]}; i += 2)); do
    pids=()
    for name in "${targets[@]:i:2}"; do
        hunt "$name" &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do
        wait "$pid" || failed=1
    done
done
exit "$failed"
