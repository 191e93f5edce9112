#!/usr/bin/env bash
# docs/bench/REPORT.md, with tables and plots: all benchmarks, each a command that the report shows.
#   scripts/report.sh [--quick] [--out DIR]
# As root the kernel's ext4 and fuse2fs are mounted, in a mount namespace of each run. Library peers take part if
# their crate builds: it needs libext2fs-dev, and crates that no other build uses.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
bench=${EXTANT_BENCH:-$target/release/extant-bench}
manifest=crates/extant-peers/Cargo.toml
peers=()
if [ ! -e /usr/include/ext2fs/ext2fs.h ]; then
    echo "libext2fs-dev is not installed: library peers take no part" >&2
elif CARGO_TARGET_DIR=$target/peers ${CARGO:-cargo} build --release --quiet --manifest-path "$manifest"; then
    peers=(--peers "$target/peers/release/extant-peers")
else
    echo "library peers cannot be built: they take no part" >&2
fi
exec "$bench" report "${peers[@]}" "$@"
