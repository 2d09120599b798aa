#!/usr/bin/env bash
# Builds all targets: `fuzz/build.sh` as they are, `fuzz/build.sh canary` with their planted faults, in a folder of its
# own. Prints the folder that holds the programs.
#
# The stable compiler does it: RUSTC_BOOTSTRAP lets cargo-fuzz pass its flags, and no sanitizer is asked for, since
# nothing here has memory faults to find beyond what Rust checks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
kind=${1:-plain}
case $kind in
plain) flags="" ;;
canary) flags="--cfg canary" ;;
*) echo "usage: fuzz/build.sh [canary]" >&2; exit 2 ;;
esac
host=$(rustc -vV | sed -n 's/^host: //p')
target="$PWD/target/$kind"
RUSTC_BOOTSTRAP=1 RUSTFLAGS="$flags" cargo fuzz build --fuzz-dir . --release --sanitizer none --debug-assertions \
    --target "$host" --target-dir "$target" >&2
echo "$target/$host/release"
