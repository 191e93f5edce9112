#!/bin/sh
# Runs the loom models of percpu and of lockmeter's mutex under every interleaving; it takes seconds.
# Should a model grow too large for that, set LOOM_MAX_PREEMPTIONS=3.
set -eu
cd "$(dirname "$0")/.."
# A target directory of its own: other flags would rebuild everything in the common target directory.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"
cargo test -p lockmeter --release --lib model::
exec cargo test -p extant-percpu --release --test loom "$@"
