#!/bin/sh
# Runs the loom models of percpu and of lockmeter's mutex under every interleaving; it takes seconds.
# Should a model grow too large for that, set LOOM_MAX_PREEMPTIONS=3.
set -eu
cd "$(dirname "$0")/.."
# Cargo keeps builds with other flags apart from each other in one target directory.
export RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"
cargo test -p lockmeter -p extant-percpu --profile test-fast --lib --test loom --no-run
cargo test -p lockmeter --profile test-fast --lib model::
exec cargo test -p extant-percpu --profile test-fast --test loom "$@"
