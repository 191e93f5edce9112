#!/usr/bin/env bash
# Judges the tests: plants each fault of the crates' planted.rs in turn and runs the test that must find it. If that test does not fail,
# the other tests below look for the fault. A fault that no test finds fails the run, and so does a test that fails without a fault.
#
#   scripts/judge.sh                  all faults
#   scripts/judge.sh --after-tests    the same, and trusts that the tests have just passed without a fault
set -euo pipefail
cd "$(dirname "$0")/.."
# The crate whose tests look for the fault, the fault, and the test that found it.
faults() {
    cat <<'END'
extant fsync-without-flush promise::a_flush_that_began_before_the_write_is_not_enough_for_fsync
extant size-before-tail promise::bytes_that_were_cut_off_do_not_come_back
extant stale-buffer store::buffers::tests::a_slow_read_does_not_bring_an_old_block_back
extant push-after-failure promise::a_push_after_one_that_failed_does_not_go_on
extant unread-bitmap promise::a_bitmap_that_cannot_be_read_stops_what_frees_in_it
extant sync-without-others promise::sync_waits_for_what_another_thread_writes_back
extant waits-locked promise::names_are_found_while_a_create_waits_for_a_frozen_volume
extant no-flush-before-commit crash::defragment::default
extant no-flush-after-commit crash::defragment::default
extant no-revoke stale_numbers::a_removed_inode_does_not_come_back_by_its_number
extant reuse-before-commit defragment::a_volume_without_a_free_run_is_left_as_it_is
extant mapping-before-data defragment::a_write_behind_the_copy_is_not_lost
extant moved-blindly defragment::a_write_behind_the_copy_is_not_lost
extant freed-number-read-again stale_numbers::a_removed_inode_does_not_come_back_by_its_number
extant dead-parent-is-damage stale_numbers::the_parent_of_a_removed_directory_may_be_gone
extant stops-at-first-failure write_back_errors::one_file_that_cannot_be_written_back_stops_no_other
extant fast-commits-forgotten crash::checkpoint::fast_commits
extant fast-commit-ahead contents::fast_commits
extant fast-commit-before-data contents::fast_commits
extant fast-commit-before-size fast_commit::a_larger_size_comes_after_its_bytes
extant fast-commits-uncounted contents::fast_commits
extant fast-commit-beside-journal fast_commit::the_first_record_is_in_another_table_block
extant fast-commit-after-failure fast_commit::a_fast_commit_behind_one_that_failed_fails
extant-repair superblock-first it::in_place::a_cut_leaves_the_old_the_new_or_what_nothing_mounts
extant-repair journal-thrown-away it::kernel::a_damaged_transaction_leaves_those_before_it
END
}
# The tests that look for a fault which its own test missed.
others() {
    case $1 in
    extant) echo promise:: stale_numbers:: write_back_errors:: buffers:: defragment:: checkpoint:: contents:: fast_commit:: ;;
    extant-repair) echo it::in_place:: it::kernel:: ;;
    esac
}

declared=$(sed -n 's/^ *("\([a-z-]*\)", Self::.*/\1/p' crates/engine/extant/src/base/planted.rs crates/offline/ext4-image/src/planted.rs | sort)
listed=$(faults | cut -d' ' -f2 | sort)
if [ "$declared" != "$listed" ]; then
    echo "judge.sh: the faults listed here are not those of planted.rs:" >&2
    diff <(echo "$declared") <(echo "$listed") >&2 || true
    exit 1
fi

# The programs that `make test` has built: the same packages, so that nothing is built twice.
built=$("${CARGO:-cargo}" test --profile test-fast --workspace --no-run --message-format json)
program() {
    printf '%s\n' "$built" | grep '"test":true' | grep "/$1/src/lib.rs\|/$1/tests/" | grep "\"name\":\"$2\"" |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}
unit=$(program extant extant)
of_extant=$(program extant it)
of_repair=$(program extant-repair extant_repair)
for binary in "$unit" "$of_extant" "$of_repair"; do
    [ -x "$binary" ] || { echo "judge.sh: the tests were not built" >&2; exit 1; }
done
# A test that was renamed would look like one that finds nothing.
there=$(for binary in "$unit" "$of_extant" "$of_repair"; do "$binary" --list; done)
for test in $(faults | cut -d' ' -f3 | sort -u); do
    grep -qxF "$test: test" <<<"$there" || { echo "judge.sh: there is no test $test" >&2; exit 1; }
done
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# run CRATE TEST LOG OPTION: a test, or all with that prefix, in the environment that the option of env makes.
run() {
    local binary=$of_extant filter=$2 log=$3
    [ "$1" = extant ] || binary=$of_repair
    case $filter in *buffers::*) binary=$unit ;; esac
    # In a shell of its own, which hides the message that a test was aborted.
    (cd crates/*/"$1" && env "$4" RUST_BACKTRACE=0 timeout 300 "$binary" "$filter" >"$log" 2>&1; exit $?) 2>/dev/null
}

# clean CRATE TEST: the test passes, and it exists.
clean() {
    local log=$logs/clean.$2
    run "$1" "$2" "$log" -uEXTANT_PLANTED && grep -q '^test result: ok. [1-9]' "$log" && return
    cat "$log"
    echo "judge.sh: $1: $2 fails without a planted fault, or does not exist" >&2
    return 1
}

# judge CRATE FAULT TEST: looks for the fault. Status 101 is a failed test. 124 is a test that hangs, and others a run that was aborted:
# neither counts as found.
judge() {
    local test status log=$logs/$2
    for test in "$3" $(others "$1"); do
        status=0
        run "$1" "$test" "$log" EXTANT_PLANTED="$2" || status=$?
        if [ "$status" = 101 ]; then
            echo "$2: $test$([ "$test" = "$3" ] || echo ", but not $3")"
            return
        fi
    done
    echo "$2: NOT FOUND"
    touch "$logs/missed"
}

export of_extant of_repair unit logs
export -f run clean judge others
jobs=$(nproc)
if [ "${1:-}" != --after-tests ]; then
    faults | cut -d' ' -f1,3 | sort -u | xargs -P "$jobs" -L 1 bash -c 'clean "$@"' _
fi
faults | xargs -P "$jobs" -L 1 bash -c 'judge "$@"' _
if [ -e "$logs/missed" ]; then
    echo "judge.sh: not all of $(faults | wc -l) planted faults were found" >&2
    exit 1
fi
echo "$(faults | wc -l) faults planted, 0 not found"
