#!/bin/sh
# Runs percpu's algorithms with more threads than loom can take, under random schedules:
# SHUTTLE_ITERATIONS of each, 20,000 if it is not set, which takes seconds.
set -eu
cd "$(dirname "$0")/.."
# A target directory of its own: other flags would rebuild everything in the common target directory.
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/shuttle" RUSTFLAGS="${RUSTFLAGS:-} --cfg shuttle" exec cargo test -p extant-percpu --release --test shuttle "$@"
