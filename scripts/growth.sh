#!/usr/bin/env bash
# Instructions for each name as one directory grows, counted by callgrind on one CPU (crates/engine/extant/examples/growth.rs).
#   scripts/growth.sh            prints the table
#   scripts/growth.sh --write    writes it to docs/bench/growth.md
set -euo pipefail
cd "$(dirname "$0")/.."
record=docs/bench/growth.md
case ${1:-} in '' | --write) ;; *) sed -n 's/^#   //p' "$0" >&2; exit 2 ;; esac

. scripts/counted.sh growth
step=100000
sizes=$(seq -s ' ' $step $step 3000000)
{
    echo "| order of the names | to 100,000 | 200,000 to 300,000 | 900,000 to 1,000,000 | 2,900,000 to 3,000,000 |"
    echo "|---|---:|---:|---:|---:|"
    for order in random hash removals; do
        rm -f "$dir"/counts* "$dir/image"
        # A new environment, of the same size everywhere.
        # shellcheck disable=SC2086
        if ! taskset -c "$cpu" env -i valgrind --tool=callgrind --callgrind-out-file="$dir/counts" --zero-before='growth::grow' \
            --dump-after='growth::grow' "$program" "$dir/image" "$order" $sizes >"$dir/log" 2>&1; then
            cat "$dir/log" >&2
            exit 1
        fi
        printf "| %s |" "$order"
        for i in 1 3 10 30; do
            total=$(sed -n 's/^\(totals\|summary\): //p' "$dir/counts.$i" | head -n 1)
            printf " %d |" $((total / step))
        done
        echo
    done
} >"$dir/table"

if [ "${1:-}" = --write ]; then
    {
        echo "# A growing directory"
        echo
        echo "What a name costs as its directory grows: the instructions of its create, and of its share in formatting and logging, in"
        echo "process, on one CPU, counted by callgrind. \`scripts/growth.sh --write\` writes this file. Each 100,000 names are made durable:"
        echo "such a step changes nearly every leaf of a large directory, and a leaf gets fewer names at once than in a small one. Names come"
        echo "in an order that has nothing to do with their hashes (random), in the order of their hashes (hash), or as in the first"
        echo "row with one of those that are there, chosen at random, removed after each third (removals): then the names made"
        echo "are counted, and carry the cost of the removals."
        echo
        cat "$dir/table"
        echo
        echo "Counted with: $(rustc --version | cut -d' ' -f1-2), $(valgrind --version), $(uname -m)"
    } >"$record"
fi
cat "$dir/table"
