#!/bin/sh
# Times `extant resize -M` against `e2fsck -fy` and `resize2fs -M`, the two taking turns, and compares every file of the results:
# scripts/resize-bench.sh EXTANT [FILES] [ROUNDS] [DIR]. Two volumes of so many files of a block each: one as `mke2fs -d` makes it, much
# larger than its files, and one whose files lie at its end, so that all of them move.
set -eu
extant=$1
files=${2:-100000}
rounds=${3:-5}
dir=$(mktemp -d -p "${4:-${TMPDIR:-/tmp}}")
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/tree"
i=0
while [ "$i" -lt "$files" ]; do
    d="$dir/tree/d$((i / 500))"
    [ -d "$d" ] || mkdir "$d"
    echo "the content of file $i" >"$d/f$i"
    i=$((i + 1))
done
mke2fs -q -t ext4 -d "$dir/tree" "$dir/filled.img" 4G
"$extant" mkfs "$dir/moved.img" --from "$dir/tree" --size 1G >/dev/null
"$extant" resize "$dir/moved.img" 4G >/dev/null
"$extant" cp -a "$dir/tree" "$dir/moved.img:/again"
"$extant" rm -r "$dir/moved.img:/d*"

seconds() { echo "$(date +%s.%N) - $1" | bc; }
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
digest() { "$extant" export "$1" - | tar -xO -f - | sha256sum; }

for volume in filled moved; do
    round=0
    while [ "$round" -lt "$rounds" ]; do
        for who in extant resize2fs; do
            image="$dir/$who.img"
            cp --sparse=always "$dir/$volume.img" "$image"
            sync "$image"
            began=$(date +%s.%N)
            case $who in
            extant) "$extant" resize -M "$image" >/dev/null ;;
            resize2fs) e2fsck -fy "$image" >/dev/null 2>&1 && resize2fs -M "$image" >/dev/null 2>&1 && sync "$image" ;;
            esac
            seconds "$began" >>"$dir/$volume.$who"
            e2fsck -fn "$image" >/dev/null 2>&1 || echo "$volume, $who: not clean"
            [ "$(digest "$image")" = "$(digest "$dir/$volume.img")" ] || echo "$volume, $who: other files"
        done
        round=$((round + 1))
    done
    ours=$(median <"$dir/$volume.extant")
    theirs=$(median <"$dir/$volume.resize2fs")
    echo "$volume: $(echo "scale=2; $theirs / $ours" | bc) times resize2fs (medians of $rounds: $ours s and $theirs s);" \
        "$(stat -c %s "$dir/extant.img") and $(stat -c %s "$dir/resize2fs.img") bytes"
done
