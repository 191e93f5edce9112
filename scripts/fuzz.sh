#!/usr/bin/env bash
# Fuzzes the parsers with libFuzzer: all targets for the given seconds each, or one of them.
#   scripts/fuzz.sh [SECONDS [TARGET]]
# libFuzzer counts edges that the compiler marks, which the stable compiler does only with RUSTC_BOOTSTRAP.
set -euo pipefail
cd "$(dirname "$0")/../lab/fuzz"
seconds=${1:-60}
targets=${2:-superblock descriptor inode extent directory htree xattr journal}
host=$(rustc -vV | sed -n 's/^host: //p')
export RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
  -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Zsanitizer=address"
cargo build --release --target "$host"
for target in $targets; do
  corpus="$CARGO_TARGET_DIR/corpus/$target"
  mkdir -p "$corpus"
  "$CARGO_TARGET_DIR/$host/release/$target" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=1024 \
    -max_len=4096 -print_final_stats=1 -artifact_prefix="$CARGO_TARGET_DIR/$target-" "$corpus"
done
