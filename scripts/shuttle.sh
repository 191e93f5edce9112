#!/bin/sh
# Runs percpu's algorithms with more threads than loom can take, under random schedules:
# SHUTTLE_ITERATIONS of each, 20,000 if it is not set, which takes seconds.
set -eu
cd "$(dirname "$0")/.."
RUSTFLAGS="${RUSTFLAGS:-} --cfg shuttle" exec cargo test -p extant-percpu --profile test-fast --test shuttle "$@"
