#!/usr/bin/env bash
# 100,000 creates and 1 GiB written and read, with libextant and with libext2fs in turn: prints the best seconds of ROUNDS (3) rounds and
# their ratios. e2fsck judges each image. LIBEXTANT is a static library that is built already.
set -euo pipefail
cd "$(dirname "$0")/../bindings/c"
target=$(realpath -m "${CARGO_TARGET_DIR:-../../target}")
if [ -z "${LIBEXTANT:-}" ]; then
    CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=$target/c "${CARGO:-cargo}" build --quiet --release
    LIBEXTANT=$target/c/release/libextant.a
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
gcc -O2 -std=gnu11 -Iinclude -o "$scratch/compare" benches/compare.c "$LIBEXTANT" -lext2fs -lcom_err -lgcc_s -lpthread -lm -ldl
for ((round = 0; round < ${ROUNDS:-3}; round++)); do
    for library in extant ext2fs; do
        mke2fs -q -F -t ext4 -N 120000 -E nodiscard "$scratch/disk.img" 3G >/dev/null
        "$scratch/compare" "$library" "$scratch/disk.img" | sed "s/^/$library /" >>"$scratch/times"
        e2fsck -fn "$scratch/disk.img" >"$scratch/said" 2>&1 || { cat "$scratch/said"; exit 1; }
        rm "$scratch/disk.img"
    done
done
awk '{ if (!(($1, $2) in best) || $3 < best[$1, $2]) best[$1, $2] = $3; if (!seen[$2]++) order[++n] = $2 }
    END { for (i = 1; i <= n; i++) { s = order[i]; a = best["extant", s]; b = best["ext2fs", s];
        printf "%s: libextant %.2f s, libext2fs %.2f s: %.1f times as fast\n", s, a, b, b / a } }' "$scratch/times"
