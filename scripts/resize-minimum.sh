#!/usr/bin/env bash
# The least size of a dozen images, as `extant resize -P` and `resize2fs -P` print it, in blocks. Fails where ours is more than 2 %
# larger, or where the image does not take the size that was printed. Needs e2fsprogs and a built `extant` (EXTANT, else of the PATH).
set -euo pipefail
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"
extant=${EXTANT:-extant}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
image=$dir/image

# Small files, larger ones, and one of many blocks.
mkdir -p "$dir/tree/small" "$dir/tree/large"
for i in $(seq 400); do
    head -c $((i * 37 % 9000)) /dev/zero | tr '\0' 'x' >"$dir/tree/small/file$i"
done
for i in $(seq 12); do
    head -c $((i * 300000)) /dev/zero | tr '\0' 'y' >"$dir/tree/large/file$i"
done
mkdir "$dir/empty"

bad=0
printf '%-62s %9s %9s %7s\n' 'image' 'extant' 'resize2fs' 'ratio'
compare() {
    local name=$1 size=$2 from=$3
    shift 3
    rm -f "$image"
    mke2fs -q -F -E nodiscard -d "$dir/$from" "$@" "$image" "$size" >/dev/null 2>&1
    # What resize2fs asks for.
    e2fsck -fy "$image" >/dev/null 2>&1 || [ $? = 1 ]
    local block ours theirs
    block=$(dumpe2fs -h "$image" 2>/dev/null | sed -n 's/^Block size: *//p')
    ours=$("$extant" resize -P "$image" | grep -oE '[0-9]+' | head -1)
    ours=$((ours / block))
    theirs=$(resize2fs -P "$image" 2>/dev/null | grep -oE '[0-9]+$')
    printf '%-62s %9d %9d %6d%%\n' "$name" "$ours" "$theirs" $((ours * 100 / theirs))
    if [ $((ours * 100)) -gt $((theirs * 102)) ]; then
        echo "  larger than what resize2fs needs"
        bad=1
    fi
    if ! "$extant" resize "$image" $((ours * block)) >/dev/null; then
        echo "  does not take its least size"
        bad=1
    elif ! e2fsck -fn "$image" >/dev/null 2>&1; then
        echo "  is not clean at its least size"
        bad=1
    fi
}

compare 'ext4, 1 KiB' 64M tree -t ext4 -b 1024
compare 'ext4, 4 KiB' 256M tree -t ext4 -b 4096
compare 'ext4, 4 KiB, larger' 4G tree -t ext4 -b 4096
compare 'ext4, empty' 1G empty -t ext4
compare 'ext4, empty, 1 KiB' 100M empty -t ext4 -b 1024
compare 'ext3, 1 KiB' 64M tree -t ext3 -b 1024
compare 'ext2, 1 KiB' 64M tree -t ext2 -b 1024
compare 'ext2, 2 KiB, no reserved descriptors' 128M tree -t ext2 -b 2048 -O ^resize_inode
compare 'ext4 without flex_bg' 300M tree -t ext4 -b 1024 -O ^flex_bg
compare 'ext4 with small groups' 100M tree -t ext4 -b 1024 -g 2048
compare 'ext4 with meta_bg' 300M tree -t ext4 -b 1024 -O meta_bg,^resize_inode
compare 'ext4 with many inodes' 200M tree -t ext4 -b 4096 -i 4096
compare 'ext4 with uninit_bg, 32 bits' 200M tree -t ext4 -b 1024 -O '^64bit,^metadata_csum,uninit_bg'
compare 'ext4 with inodes of 128 bytes and no journal' 200M tree -t ext4 -b 1024 -I 128 -O ^has_journal
exit $bad
