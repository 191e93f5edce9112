#!/usr/bin/env bash
# The figures of docs/benchmarks.md. Needs root for the kernel's side (loop mounts); without it only
# our own figures are printed. Everything but what `usr` makes lies in /dev/shm; all of it is removed at the end.
#   scripts/bench.sh [mdtest] [scale] [bulk] [usr] [check]      all of them without arguments
set -euo pipefail
cd "$(dirname "$0")/.."
bench=${EXTANT_BENCH:-${CARGO_TARGET_DIR:-target}/release/extant-bench}
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
        "$bench" mdtest --target lib --target "$mnt" --size 8G --journal 1024 "$@"
        unmount_kernel
    else
        "$bench" mdtest --target lib --size 8G --journal 1024 "$@"
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
    "$bench" mdtest --target lib --size 8G --journal 1024 --tasks 48 --files 4000 --iterations 5
fi

if want scale; then
    echo "== 1,000,000 names in one directory"
    "$bench" grow --names 1000000 --size 8G --journal 1024
    echo "== 10,000,000 files in one image"
    "$bench" grow --names 10000000 --dirs 100 --size 32G --journal 2048
fi

bulk() { # arguments of bulk: against the peers that are installed
    local peers=()
    ! command -v mke2fs >/dev/null || peers+=(--against mke2fs)
    ! command -v tar >/dev/null || peers+=(--against tar)
    "$bench" bulk "${peers[@]}" "$@"
}

if want bulk; then
    echo "== 2 x 50,000 small files in memory; peers one round, of which mke2fs needs minutes"
    bulk --dirs 2 --files 50000 --size 6 --iterations 5 --rounds-peer 1
fi

if want usr; then
    echo "== /usr to the disk of ${TMPDIR:-/tmp}"
    bulk --from /usr --dir "${TMPDIR:-/tmp}" --iterations 5 --rounds-peer 3
fi

if want check; then
    echo "== the check of an image of 1,000,000 files in 1,000 directories, warm: milliseconds"
    extant=${EXTANT:-$(dirname "$bench")/extant}
    for dir in $(seq 1000); do
        mkdir -p "$shm/tree/$dir"
        (cd "$shm/tree/$dir" && seq -f file%g 1000 | xargs touch)
    done
    "$extant" mkfs "$shm/check.img" --from "$shm/tree" --size 16G >/dev/null
    rm -r "$shm/tree"
    for round in 1 2 3 4 5; do
        for check in "e2fsck -fn" "$extant check" "$extant check --threads 1"; do
            begin=$(date +%s%N)
            $check "$shm/check.img" >"$shm/check.log" 2>&1 || { cat "$shm/check.log" >&2; exit 1; }
            echo "$round ${check##*/} $((($(date +%s%N) - begin) / 1000000))"
        done
    done
fi
