#!/usr/bin/env bash
# Judges the judge: plants each fault of the crates' src/planted.rs (of the engine src/base/planted.rs) in turn and has the tests look for it.
# A fault that no test finds fails the run, and so does a test that fails without a fault.
set -euo pipefail
cd "$(dirname "$0")/.."
# By crate, quick ones first; of the engine's own tests those of metadata blocks in memory.
crates=(extant extant-repair)
tests_of() {
    case $1 in
    extant) echo promise:: buffers:: defragment:: checkpoint:: contents:: fast_commit::a_larger \
        fast_commit::the_first fast_commit::programs:: ;;
    extant-repair) echo in_place:: kernel:: ;;
    esac
}

# The programs that `make test` has built: the same packages, so that nothing is built twice.
built=$("${CARGO:-cargo}" test --profile test-fast --workspace --no-run --message-format json)
program() {
    printf '%s\n' "$built" | grep '"test":true' | grep "/$1/src/lib.rs\|/$1/tests/" | grep "\"name\":\"$2\"" |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}
lib=$(program extant extant)
run() {
    local binary=$it filter=$1
    shift
    [ "$filter" != buffers:: ] || binary=$lib
    # In a shell of its own, which hides the message that a test was aborted.
    ("$@" timeout 300 "$binary" "$filter" >"$log" 2>&1; exit $?) 2>/dev/null
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
count=0
missed=()
for crate in "${crates[@]}"; do
    it=$(program "$crate" it)
    for binary in "$lib" "$it"; do
        [ -x "$binary" ] || { echo "judge.sh: the tests of $crate were not built" >&2; exit 1; }
    done
    read -ra tests <<<"$(tests_of "$crate")"
    cd crates/*/"$crate"
    # The tests that must find the faults: each must pass without a planted fault.
    for test in "${tests[@]}"; do
        if ! run "$test" env; then
            cat "$log"
            echo "$crate: $test fails without a planted fault" >&2
            exit 1
        fi
    done
    # The faults of images off line are planted in ext4-image, and the tests of a repair find them.
    planted=src
    [ "$crate" != extant-repair ] || planted=../ext4-image/src
    faults=$(sed -n 's/^ *("\([a-z-]*\)", Self::.*/\1/p' "$(find "$planted" -name planted.rs)")
    for fault in $faults; do
        count=$((count + 1))
        found=
        for test in "${tests[@]}"; do
            status=0
            run "$test" env EXTANT_PLANTED="$fault" RUST_BACKTRACE=0 || status=$?
            # 101: a test failed. 124 is a test that hangs, and others a run that was aborted: neither counts as found.
            if [ "$status" = 101 ]; then
                found="$test: $(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$log" | paste -sd ' ')"
                break
            fi
        done
        echo "$fault: ${found:-NOT FOUND}"
        [ -n "$found" ] || missed+=("$fault")
    done
    cd ../../..
done
echo "$count faults planted, ${#missed[@]} not found"
[ "$count" -ge 10 ] && [ "${#missed[@]}" = 0 ]
