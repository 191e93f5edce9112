#!/usr/bin/env bash
# docs/bench/REPORT.md, with tables and plots: all benchmarks, each a command that the report shows. The figures that other
# documents quote of it follow.
#   scripts/report.sh [--partial] [--long] [--quick] [--out DIR]
# --long: docs/bench/long/REPORT.md, with benchmarks of larger trees.
# Fails with the names of the packages whose tools are missing; --partial leaves out what needs them.
# As root the kernel's ext4 and fuse2fs are mounted, in a mount namespace of each run. Library peers take part if
# their crate builds: it needs libext2fs-dev, and crates that no other build uses.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
bench=${EXTANT_BENCH:-$target/release/extant-bench}
manifest=lab/extant-peers/Cargo.toml
partial=
if [ "${1:-}" = --partial ]; then
    partial=yes
    shift
fi
missing=()
for need in mke2fs:e2fsprogs fuse2fs:fuse2fs fusermount3:fuse3 git:git tar:tar; do
    command -v "${need%%:*}" >/dev/null || missing+=("${need##*:}")
done
[ -e /usr/share/dbench/client.txt ] || missing+=(dbench)
[ -e /usr/include/ext2fs/ext2fs.h ] || missing+=(libext2fs-dev)
if [ ${#missing[@]} -gt 0 ] && [ -z "$partial" ]; then
    echo "report.sh: install ${missing[*]}, or say --partial" >&2
    exit 1
fi
peers=()
if [ ! -e /usr/include/ext2fs/ext2fs.h ]; then
    echo "libext2fs-dev is not installed: library peers take no part" >&2
elif CARGO_TARGET_DIR=$target/peers ${CARGO:-cargo} build --release --quiet --manifest-path "$manifest"; then
    peers=(--peers "$target/peers/release/extant-peers")
else
    echo "library peers cannot be built: they take no part" >&2
fi
"$bench" report "${peers[@]}" "$@"
# A report elsewhere is not the one that documents quote.
case " $* " in
*" --out "*) ;;
*) "$bench" figures README.md docs ;;
esac
