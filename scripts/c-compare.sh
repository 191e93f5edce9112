#!/usr/bin/env bash
# 100,000 creates and 1 GiB written and read, with libextant, libext2fs and lwext4 in turn: prints the best seconds of ROUNDS (3) rounds and
# their ratios. e2fsck judges each image. LIBEXTANT is a static library that is built already; LWEXT4 is the source of lwext4, without
# which the one in the crate lwext4-sys is fetched.
set -euo pipefail
cd "$(dirname "$0")/../bindings/c"
target=$(realpath -m "${CARGO_TARGET_DIR:-../../target}")
if [ -z "${LIBEXTANT:-}" ]; then
    CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=$target/c "${CARGO:-cargo}" build --quiet --release
    LIBEXTANT=$target/c/release/libextant.a
fi
if [ -z "${LWEXT4:-}" ]; then
    LWEXT4=$target/lwext4/vendor/lwext4-sys/lwext4
    if [ ! -d "$LWEXT4" ]; then
        mkdir -p "$target/lwext4/src"
        printf '[workspace]\n[package]\nname = "fetch"\nversion = "0.0.0"\n[dependencies]\nlwext4-sys = "=0.1.0"\n' >"$target/lwext4/Cargo.toml"
        touch "$target/lwext4/src/lib.rs"
        (cd "$target/lwext4" && "${CARGO:-cargo}" vendor --quiet vendor >/dev/null)
    fi
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
gcc -O2 -std=gnu11 -Iinclude -o "$scratch/compare" benches/compare.c "$LIBEXTANT" -lext2fs -lcom_err -lgcc_s -lpthread -lm -ldl
# The settings of its own build for Linux, without its assertions.
gcc -O2 -std=gnu11 -w -I"$LWEXT4/include" -DCONFIG_USE_DEFAULT_CFG=1 -DCONFIG_HAVE_OWN_OFLAGS=0 -DCONFIG_HAVE_OWN_ERRNO=0 \
    -DCONFIG_HAVE_OWN_ASSERT=0 -DCONFIG_BLOCK_DEV_CACHE_SIZE=16 -DCONFIG_DEBUG_PRINTF=0 -DCONFIG_DEBUG_ASSERT=0 \
    -o "$scratch/compare_lwext4" benches/compare_lwext4.c "$LWEXT4"/src/*.c
for ((round = 0; round < ${ROUNDS:-3}; round++)); do
    for library in extant ext2fs lwext4; do
        mke2fs -q -F -t ext4 -N 120000 -E nodiscard "$scratch/disk.img" 3G >/dev/null
        case $library in
        lwext4) "$scratch/compare_lwext4" "$scratch/disk.img" ;;
        *) "$scratch/compare" "$library" "$scratch/disk.img" ;;
        esac | sed "s/^/$library /" >>"$scratch/times"
        e2fsck -fn "$scratch/disk.img" >"$scratch/said" 2>&1 || { cat "$scratch/said"; exit 1; }
        rm "$scratch/disk.img"
    done
done
awk '{ if (!(($1, $2) in best) || $3 < best[$1, $2]) best[$1, $2] = $3; if (!seen[$2]++) order[++n] = $2 }
    END { for (i = 1; i <= n; i++) { s = order[i]; a = best["extant", s]; b = best["ext2fs", s]; c = best["lwext4", s];
        printf "%s: libextant %.2f s, libext2fs %.2f s, lwext4 %.2f s: %.1f and %.1f times as fast\n", s, a, b, c, b / a, c / a } }' "$scratch/times"
