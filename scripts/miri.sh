#!/bin/sh
# Runs unit tests under Miri, which watches unsafe code, that of the few modules here that have some and of the crates
# below, as they are used here: locks and atomics under weak memory (lockmeter, percpu), shared chunks (blockdev), views of
# raw bytes (ext4-format). It takes some minutes. Miri cannot make system calls on files or run programs, so tests that do
# are left out, by name:
#   blockdev     file::, kernel::      real files and loop devices;  overlay::  more than a quarter of an hour;
#                replay::  thousands of images, and nothing that record:: does not touch
#   ext4-format  all but the modules named below, which view raw bytes as structures
# The engine asks the system for its memory when a volume is opened, so its tests cannot run here.
#   MIRI_TOOLCHAIN=nightly-2026-05-20 scripts/miri.sh
# takes another nightly than the newest: those of late 2026 refuse how parking_lot 0.12.5 calls futex(2), with a
# reference to an AtomicI32 where they want a pointer to a u32.
set -eu
cd "$(dirname "$0")/.."
toolchain="${MIRI_TOOLCHAIN:-nightly}"
if ! cargo "+$toolchain" miri --version >/dev/null 2>&1; then
  echo "miri.sh: no Miri here; rustup toolchain install $toolchain --component miri,rust-src" >&2
  exit 1
fi
# A target directory of its own: other flags would rebuild everything in the common target directory. parking_lot's queues of
# waiters keep pointers as integers, hence the permission.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/miri"
export MIRIFLAGS="${MIRIFLAGS:-} -Zmiri-disable-isolation -Zmiri-permissive-provenance"
export PROPTEST_CASES="${PROPTEST_CASES:-1}"
run() { cargo "+$toolchain" miri test --quiet "$@"; }
run -p lockmeter --lib -- mutex::
run -p extant-percpu --lib
# Miri has the features of a processor that it is told of.
RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+sse4.2,+pclmulqdq" run -p ext4-format --lib -- it::checksum::
run -p extant-blockdev --lib -- --skip file:: --skip kernel:: --skip overlay:: --skip replay::
run -p ext4-format --lib -- dir_entry:: extent:: htree:: inode:: jbd2:: orphan_file:: superblock:: xattr::
