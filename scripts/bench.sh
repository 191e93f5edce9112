#!/usr/bin/env bash
# The figures of docs/benchmarks.md. Needs root for the kernel's side (loop mounts); without it only
# our own figures are printed. Everything lies in /dev/shm and is removed at the end.
#   scripts/bench.sh [mdtest] [scale] [bulk] [usr]      all of them without arguments
set -euo pipefail
cd "$(dirname "$0")/.."
extant=${EXTANT:-${CARGO_TARGET_DIR:-target}/release/extant}
shm=$(mktemp -d /dev/shm/extant-bench.XXXXXX)
mnt=$shm/mnt
mounted=
cleanup() {
    [ -z "$mounted" ] || umount "$mnt"
    rm -rf "$shm"
}
trap cleanup EXIT

want() { [ "$wanted" = all ] || [[ " $wanted " == *" $1 "* ]]; }
wanted=${*:-all}

mount_kernel() { # SIZE, MiB of journal
    rm -f "$shm/kernel.img"
    mke2fs -q -F -t ext4 -J size="$2" -E lazy_itable_init=0,lazy_journal_init=0 "$shm/kernel.img" "$1" >/dev/null
    mkdir -p "$mnt"
    mount -o loop "$shm/kernel.img" "$mnt"
    mounted=1
}
unmount_kernel() { umount "$mnt"; mounted=; rm -f "$shm/kernel.img"; }

peers() { # arguments of mdtest: against the kernel, if we may mount
    if [ "$(id -u)" = 0 ]; then
        mount_kernel 8G 1024
        "$extant" bench mdtest --target lib --target "$mnt" --size 8G --journal 1024 "$@"
        unmount_kernel
    else
        "$extant" bench mdtest --target lib --size 8G --journal 1024 "$@"
    fi
}

if want mdtest; then
    for tasks in 1 2; do
        echo "== mdtest, $tasks task(s), own directories"
        peers --tasks $tasks --files 100000 --iterations 5
    done
    echo "== mdtest, 2 tasks, one shared directory"
    peers --tasks 2 --files 100000 --iterations 5 --shared
    echo "== mdtest, 48 tasks on these CPUs"
    "$extant" bench mdtest --target lib --size 8G --journal 1024 --tasks 48 --files 4000 --iterations 5
fi

if want scale; then
    echo "== 1,000,000 names in one directory"
    "$extant" bench mdtest --target lib --size 8G --journal 1024 --tasks 1 --files 1000000 --iterations 1
    echo "== 10,000,000 files in one image"
    "$extant" bench mdtest --target lib --size 32G --journal 2048 --tasks 100 --files 100000 --iterations 1
fi

seconds() { # COMMAND...: wall seconds
    local begin end
    begin=$(date +%s.%N)
    "$@" >/dev/null 2>&1
    end=$(date +%s.%N)
    echo "$end $begin" | awk '{printf "%.2f", $1 - $2}'
}

if want bulk; then
    echo "== 2 x 50,000 small files: mkfs --from, against mke2fs -d"
    for d in a b; do
        mkdir -p "$shm/tree/$d"
        (cd "$shm/tree/$d" && seq 50000 | xargs -n 2000 sh -c 'for n; do echo "$n" > "file.$n"; done' _)
    done
    for round in 1 2 3 4 5; do
        rm -f "$shm/x.img"
        echo "extant round $round: $(seconds "$extant" mkfs "$shm/x.img" --size 2G --from "$shm/tree") s"
    done
    rm -f "$shm/k.img"
    echo "mke2fs -d, one round: $(seconds mke2fs -q -F -t ext4 -d "$shm/tree" "$shm/k.img" 2G) s"
    rm -rf "$shm/tree" "$shm/x.img" "$shm/k.img"
fi

if want usr; then
    disk=$(mktemp -d "${TMPDIR:-/tmp}/extant-bench.XXXXXX")
    echo "== /usr to the disk of $disk: mkfs --from, tar c, mke2fs -d"
    find /usr -xdev | wc -l
    for round in 1 2 3; do
        rm -f "$disk/x.img" "$disk/x.tar"
        sync
        echo "extant round $round: $(seconds sh -c "'$extant' mkfs '$disk/x.img' --from /usr && sync '$disk/x.img'") s"
        sync
        echo "tar c  round $round: $(seconds sh -c "tar c --one-file-system -f '$disk/x.tar' -C / usr && sync '$disk/x.tar'") s"
    done
    /usr/bin/time -f "peak memory of extant: %M KiB" "$extant" mkfs "$disk/y.img" --from /usr >/dev/null || true
    rm -f "$disk"/*.img
    echo "mke2fs -d, one round: $(seconds sh -c "mke2fs -q -F -t ext4 -d /usr '$disk/k.img' 12G && sync '$disk/k.img'") s"
    rm -rf "$disk"
fi
