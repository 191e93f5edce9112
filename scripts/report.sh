#!/usr/bin/env bash
# docs/bench/REPORT.md, with tables and plots: all benchmarks, each a command that the report shows.
#   scripts/report.sh [--quick] [--out DIR]
# As root the kernel's ext4 and fuse2fs are mounted, in a mount namespace of each run.
set -euo pipefail
cd "$(dirname "$0")/.."
exec "${EXTANT:-${CARGO_TARGET_DIR:-target}/release/extant}" bench report "$@"
