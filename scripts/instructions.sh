#!/usr/bin/env bash
# Instructions of each operation of the library, counted by callgrind on one CPU (crates/engine/extant/examples/instructions.rs).
#   scripts/instructions.sh            prints the table
#   scripts/instructions.sh --write    writes it to docs/bench/instructions.md
#   scripts/instructions.sh --check    fails if an operation takes over 1 % more than that file says
#
# A second argument --test-build counts in the program that is built with the tests, whose counts are in
# docs/bench/instructions-of-tests.md: no other build is needed to see that an operation takes more than before. There the
# limit is 5 %, because how the compiler divides a crate depends on the build.
set -euo pipefail
cd "$(dirname "$0")/.."
record=docs/bench/instructions.md
title="# Instructions"
test_build=
most=1
if [ "${2:-}" = --test-build ]; then
    test_build=1
    most=5
    record=docs/bench/instructions-of-tests.md
    title="# Instructions in the build of the tests"
fi
case ${1:-} in '' | --write | --check) ;; *) sed -n 's/^#   //p' "$0" >&2; exit 2 ;; esac

. scripts/counted.sh instructions
# A new environment, of the same size everywhere.
if ! taskset -c "$cpu" env -i valgrind --tool=callgrind --callgrind-out-file="$dir/counts" \
    "$program" "$dir/image" >"$dir/log" 2>&1; then
    cat "$dir/log" >&2
    exit 1
fi

# Inclusive costs of the calls of each counted function.
awk '
    /^c?fn=\([0-9]+\) / { id = $1; sub(/^c?fn=/, "", id); name = $0; sub(/^[^ ]* /, "", name); names[id] = name }
    /^cfn=/ { id = $1; sub(/^cfn=/, "", id); callee = names[id]; next }
    /^calls=/ { sub(/^calls=/, "", $1); n = $1; getline; calls[callee] += n; cost[callee] += $2 }
    function row(what, f, per) {
        f = "instructions::" f
        per = per ? calls["instructions::" per] : calls[f]
        if (!per || !cost[f]) { print "no calls of " f > "/dev/stderr"; exit 1 }
        printf "| %s | %.0f |\n", what, cost[f] / per
    }
    END {
        print "| operation | instructions |"
        print "|---|---:|"
        row("create", "create")
        row("unlink", "unlink")
        row("rename", "rename")
        row("lookup, directory in memory", "lookup_warm")
        row("lookup, directory on the device", "lookup_cold")
        row("write 4 KiB", "write_4k")
        row("write-back of 4 KiB (64 together), with its share of a commit", "sync_writes", "write_4k")
        row("fsync of 4 KiB", "fsync")
        row("fsync of 4 KiB, fast commits", "fsync_fast")
        row("create, write and fsync of 4 KiB, fast commits", "file_fast")
        row("fallocate 8 KiB", "fallocate")
        row("truncate 1 MiB", "truncate")
        row("formatting and logging a create", "sync_creates", "create")
        row("formatting and logging an unlink", "sync_unlinks", "unlink")
    }
' "$dir/counts" >"$dir/table"

toolchain="$(rustc --version | cut -d' ' -f1-2), $(valgrind --version), $(uname -m)"
case ${1:-} in
'') cat "$dir/table" ;;
--write)
    {
        echo "$title"
        echo
        echo "What each operation of the library takes on one CPU, in process, counted by callgrind: the mean of hundreds to tens of"
        echo "thousands of calls, user space only. \`scripts/instructions.sh --write${test_build:+ --test-build}\` writes this file; \`scripts/instructions.sh --check${test_build:+ --test-build}\` fails"
        echo "when a row rises by more than $most %. The figures depend on the compiler, and on the instructions of the processor that valgrind"
        echo "knows (the checksum of a block is one instruction per eight bytes or many): a check by another toolchain compares, and says so."
        echo
        echo "Counted with: $toolchain"
        echo
        cat "$dir/table"
    } >"$record"
    cat "$dir/table" ;;
--check)
    written=$(sed -n 's/^Counted with: //p' "$record")
    same=1
    [ "$written" = "$toolchain" ] || { same=0; echo "$record was written with $written; here is $toolchain"; }
    awk -F ' *[|] *' -v most="$most" '
        $3 ~ /^[0-9]+$/ && FNR == NR { before[$2] = $3; next }
        $3 ~ /^[0-9]+$/ {
            if (!($2 in before)) { printf "%s: not in the file\n", $2; bad = 1; next }
            change = 100 * ($3 / before[$2] - 1)
            printf "%-65s %8d -> %8d  %+.2f %%%s\n", $2, before[$2], $3, change, (change > most ? "  ROSE" : "")
            if (change > most) bad = 1
            delete before[$2]
        }
        END { for (name in before) { printf "%s: no longer counted\n", name; bad = 1 } exit bad }
    ' "$record" "$dir/table" || {
        [ $same = 1 ] || echo "perhaps by the toolchain: compare the commit before with this one here" >&2
        exit 1
    } ;;
esac
