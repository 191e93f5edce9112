#!/usr/bin/env bash
# What a file in memory takes: heap for each new file, and cache lines that a create and an unlink touch
# (crates/engine/extant/examples/footprint.rs). Rows of docs/bench/footprint.md.
#   scripts/footprint.sh            prints the table
#   scripts/footprint.sh --write    writes it
set -euo pipefail
cd "$(dirname "$0")/.."
record=docs/bench/footprint.md
case ${1:-} in '' | --write) ;; *) sed -n 's/^#   //p' "$0" >&2; exit 2 ;; esac

. scripts/counted.sh footprint

heap=$(taskset -c "$cpu" env -i "$program" heap "$dir/image")
rm "$dir/image"
# Every access of the program, cut into operations by its stores to a word, whose address it prints: 200 creates, then 200
# unlinks. A line is 64 bytes; an access that crosses into the next counts as one of the first. The stack does not count.
# What nine of ten operations touch stays in the nearest cache; the others are an operation's own lines.
mkfifo "$dir/trace"
awk '
    function key(hex, n, d) {
        n = length(hex)
        d = index("0123456789abcdef", substr(hex, n - 1, 1)) - 1
        return substr(hex, 1, n - 2) "." int(d / 4)
    }
    /^mark / { mark = substr($2, 3); stack = substr($4, 3); stack = substr(stack, 1, length(stack) - 5); next }
    mark == "" { next }
    /^ [SLM] / {
        split($2, at, ",")
        sub(/^0+/, "", at[1])
        if (at[1] == mark && $1 == "S") {
            what = ops < 200 ? "create" : "unlink"
            if (inside) {
                ops++
                for (line in seen) { touched[what, line]++; wrote[what, line] += seen[line] > 1 }
                split("", seen)
            }
            inside = !inside
        } else if (inside && substr(at[1], 1, length(at[1]) - 5) != stack) {
            line = key(at[1])
            if ($1 != "L") seen[line] = 2
            else if (!(line in seen)) seen[line] = 1
        }
    }
    END {
        for (entry in touched) {
            split(entry, part, SUBSEP)
            own = touched[entry] < 180
            sum[part[1], own] += touched[entry]
            if (own) changed[part[1]] += wrote[entry]
        }
        n = split("create unlink", name, " ")
        for (i = 1; i <= n; i++) {
            printf "| cache lines of one %s alone | %.1f |\n", name[i], sum[name[i], 1] / 200
            printf "| of these, written | %.1f |\n", changed[name[i]] / 200
            printf "| cache lines that every %s touches | %.1f |\n", name[i], sum[name[i], 0] / 200
        }
    }
' "$dir/trace" >"$dir/lines" &
reader=$!
taskset -c "$cpu" env -i valgrind --tool=lackey --trace-mem=yes --log-fd=1 "$program" lines "$dir/image" \
    >"$dir/trace" 2>/dev/null
wait "$reader"
{
    echo "| what | value |"
    echo "|---|---:|"
    echo "| bytes of heap for each new file, its items in the log among them | $heap |"
    cat "$dir/lines"
} >"$dir/table"
if [ "${1:-}" = --write ]; then
    {
        echo "# Footprint"
        echo
        echo "What a file in memory takes, in process: \`scripts/footprint.sh --write\` writes this file. Heap is the sum of what an allocator"
        echo "is asked for while 16,000 files are made in one directory, before a push. Cache lines are the distinct lines of 64 bytes, without"
        echo "the stack, that an operation reads or writes, the mean of 200 in a directory of 1,500 names, from a trace of all accesses"
        echo "(valgrind's lackey). Lines that nine of ten operations touch stay in the nearest cache; the others are those of one operation"
        echo "alone: its inode, its name, its items in the log, its places in the index and in the list of inodes."
        echo
        cat "$dir/table"
    } >"$record"
fi
cat "$dir/table"
