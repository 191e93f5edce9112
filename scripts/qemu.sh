#!/usr/bin/env bash
# Has another kernel mount an image: Debian's cloud kernel in QEMU, by software emulation, so that it runs anywhere.
#
#   scripts/qemu.sh IMAGE JOB [OPTIONS]
#
# boots it with IMAGE as its disk, mounts that on /mnt as ext4 with OPTIONS (default: defaults), runs the shell script JOB
# there (busybox is all there is), prints what it prints, and ends with its status. A last line "cut" of the job ends the
# machine as a power cut would, without unmounting. EXT4-fs errors in the kernel's log are a failure.
#
#   scripts/qemu.sh --kernel DIR
#
# writes DIR/vmlinuz and DIR/initrd, which start the system that is on the first disk.
#
#   scripts/qemu.sh --fetch
#
# only fetches what is missing: QEMU and busybox are the packages qemu-system-x86 and busybox-static; the kernel
# is unpacked below ${XDG_CACHE_HOME:-~/.cache}/extant-qemu, not installed.
set -euo pipefail

cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/extant-qemu

fail() {
    echo "qemu.sh: $*" >&2
    exit 2
}

# The kernel that the package linux-image-cloud-amd64 stands for, unpacked; its directory is printed.
kernel() {
    local found package
    found=$(ls -d "$cache"/linux-image-*/ 2>/dev/null | sort -V | tail -1)
    if [ -z "$found" ]; then
        local names="apt-cache depends linux-image-cloud-amd64"
        # The lists of a fresh machine are empty.
        $names >/dev/null 2>&1 || apt-get update -q >&2 || true
        package=$($names 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9][^ ]*\).*/\1/p' | head -1)
        [ -n "$package" ] || fail "apt knows no package linux-image-cloud-amd64 (apt-get update?)"
        mkdir -p "$cache"
        local dir
        dir=$(mktemp -d "$cache/new.XXXXXX")
        (cd "$dir" && apt-get download -q "$package" >&2) || fail "cannot download the package $package"
        dpkg-deb -x "$dir"/*.deb "$dir/tree"
        # Another run may have been faster.
        mv -T "$dir/tree" "$cache/$package" 2>/dev/null || true
        rm -rf "$dir"
        found=$cache/$package
    fi
    echo "${found%/}"
}

# Modules that a disk and ext4 need, each after those it needs itself.
modules() {
    local dep=$1/modules.dep seen=" " order=""
    [ -e "$dep" ] || "$busybox" depmod -b "${1%/lib/modules/*}" "${1##*/}"
    need() {
        local name=$1 line
        line=$(grep -E "/$name\.ko(\.xz|\.zst)?:" "$dep" || true)
        [ -n "$line" ] || return 0
        local path=${line%%:*} others=${line#*:} other
        case $seen in *" $path "*) return 0 ;; esac
        seen="$seen$path "
        for other in $others; do
            other=${other##*/}
            need "${other%%.ko*}"
        done
        order="$order $path"
    }
    for name in virtio_pci virtio_blk crc32c_generic crc32c-intel ext4; do need "$name"; done
    echo "$order"
}

command -v qemu-system-x86_64 >/dev/null || fail "needs the package qemu-system-x86"
busybox=$(command -v busybox) || fail "needs the package busybox-static"
applets=$("$busybox" --list)
grep -qx cpio <<<"$applets" || fail "this busybox has no cpio: needs the package busybox-static"
tree=$(kernel)
[ "${1:-}" != --fetch ] || exit 0
[ $# -ge 2 ] || fail "usage: qemu.sh IMAGE JOB [OPTIONS]"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,dev,proc,sys,mnt,tmp,modules}
cp "$busybox" "$root/bin/busybox"
version=$(ls "$tree/lib/modules")
loads=
for module in $(modules "$tree/lib/modules/$version"); do
    cp "$tree/lib/modules/$version/$module" "$root/modules/"
    loads="$loads ${module##*/}"
done

# Packs the first root directory, whose /init is on standard input.
pack() {
    {
        cat <<INIT
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
INIT
        cat
    } >"$root/init"
    chmod +x "$root/init"
    (cd "$root" && find . | "$busybox" cpio -o -H newc 2>/dev/null) >"$1"
}

if [ "$1" = --kernel ]; then
    pack "$2/initrd" <<INIT
for module in $loads; do insmod /modules/\$module 2>/dev/null; done
mount -t ext4 /dev/vda /mnt
umount /proc /sys
mount --move /dev /mnt/dev
exec switch_root /mnt /sbin/init
INIT
    cp "$(echo "$tree"/boot/vmlinuz-*)" "$2/vmlinuz"
    exit 0
fi

image=$1 job=$2 options=${3:-defaults}
sed '/^cut$/d' "$job" >"$root/job"
cut=no
[ "$(tail -1 "$job")" != cut ] || cut=yes
pack "$work/initrd" <<INIT
exec </dev/null >/dev/ttyS0 2>&1
stty -opost </dev/ttyS0
for module in $loads; do insmod /modules/\$module 2>/dev/null; done
status=97
echo "kernel \$(uname -r)"
echo ---- job
if mount -t ext4 -o $options /dev/vda /mnt; then
    (cd /mnt && sh -e /job)
    status=\$?
    [ $cut = yes ] || umount /mnt || status=98
fi
if dmesg | grep -E 'EXT4-fs (error|warning)|JBD2: .*(error|corrupt)|BUG|Oops'; then status=99; fi
echo "---- status \$status"
# -n: unsynced data do not reach the disk.
poweroff -f -n
INIT

# no_timer_check: on a busy machine the emulated timer may be late, and Linux would panic when it looks for its ticks.
timeout "${QEMU_TIMEOUT:-240}" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 1 -m 256 \
    -nodefaults -no-user-config -display none -serial stdio -no-reboot -net none \
    -kernel "$(echo "$tree"/boot/vmlinuz-*)" -initrd "$work/initrd" \
    -append "console=ttyS0 quiet panic=-1 tsc=reliable mitigations=off no_timer_check" \
    -drive "file=$image,format=raw,if=none,id=disk,cache=writeback" -device virtio-blk-pci,drive=disk \
    </dev/null >"$work/log" 2>&1 || true
status=$(sed -n 's/^---- status \([0-9]*\).*/\1/p' "$work/log" | tail -1)
if [ -z "$status" ]; then
    cat "$work/log" >&2
    fail "the machine did not come to its end"
fi
sed -n '/^---- job/,/^---- status/p' "$work/log" | sed '/^---- /d'
exit "$status"
