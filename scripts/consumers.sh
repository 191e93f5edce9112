#!/bin/bash
# Programs that call mke2fs, e2fsck, tune2fs and resize2fs run with e2fsprogs and with this program under its names; the trees that
# come of it are compared, and e2fsck judges the images. A program that is not installed is named and left out. Needs root.
# scripts/consumers.sh PROGRAM
set -eu
extant=$(realpath "$1")
work=$(mktemp -d)
mounted=() loops=()
end() {
  for dir in "${mounted[@]}"; do umount "$dir" 2>/dev/null || :; done
  for device in "${loops[@]}"; do losetup -d "$device" 2>/dev/null || :; done
  rm -rf "$work"
}
trap end EXIT
mkdir "$work/names"
for name in mke2fs mkfs.ext2 mkfs.ext3 mkfs.ext4 e2fsck fsck.ext2 fsck.ext3 fsck.ext4 tune2fs dumpe2fs e2label resize2fs lsattr chattr debugfs; do
  ln -s "$extant" "$work/names/$name"
done
system=$PATH:/usr/sbin:/sbin
failed=0 ran=0

# Runs a function with the tools of one kind: ours or theirs, in a directory of that name.
with() {
  local kind=$1 path=$system
  [ "$kind" = theirs ] || path=$work/names:$system
  mkdir -p "$work/$consumer/$kind"
  (cd "$work/$consumer/$kind" && PATH=$path SOURCE_DATE_EPOCH=1700000000 "$consumer" >log 2>&1)
}

# The content of an image: names, modes, owners, sizes, sums.
tree() {
  local dir=$work/mounted
  mkdir -p "$dir"
  mount -o loop,ro "$1" "$dir"
  mounted+=("$dir")
  (cd "$dir" && find . -path ./lost+found -prune -o -printf '%p %y %m %U %G %l %s\n' | sed 's/ d \(.*\) [0-9]*$/ d \1/' | sort
    find . -type f -exec cksum {} + | sort -k 3)
  umount "$dir"
  mounted=()
}

same() {
  tree "$1" >"$work/left"
  tree "$2" >"$work/right"
  diff "$work/left" "$work/right" >"$work/differ"
}

compare() {
  consumer=$1
  if ! command -v "$2" >/dev/null; then
    echo "${consumer#run_}: not installed"
    return
  fi
  ran=$((ran + 1))
  for kind in theirs ours; do
    if ! with "$kind"; then
      echo "${consumer#run_}: failed with the tools of $kind:"
      tail -n 5 "$work/$consumer/$kind/log"
      failed=1
      return
    fi
  done
  for image in "$work/$consumer"/ours/*.ext*; do
    name=$(basename "$image")
    if ! PATH=$system e2fsck -fn "$image" >"$work/judged" 2>&1; then
      echo "${consumer#run_}: $name:"
      tail -n 5 "$work/judged"
      failed=1
    elif ! same "$work/$consumer/theirs/$name" "$image"; then
      echo "${consumer#run_}: $name differs:"
      head -n 5 "$work/differ"
      failed=1
    else
      echo "${consumer#run_}: $name is the same"
    fi
  done
}

source_tree() {
  mkdir -p root/etc root/usr/bin
  echo welcome >root/etc/motd
  ln -s motd root/etc/link
  seq 100000 >root/usr/bin/numbers
  chmod 4755 root/usr/bin/numbers
  chown 5:6 root/etc/motd
}

run_genimage() {
  source_tree
  cat >config <<'CONFIG'
image out.ext4 {
  name = "root"
  size = 32M
  ext4 { label = "data" use-mke2fs = true features = "^64bit" }
}
image out.ext2 { name = "root" size = 16M ext2 { use-mke2fs = true } }
CONFIG
  genimage --config config --rootpath root --outputpath . --inputpath . --tmppath tmp
}

# Saves a volume, and restores it into one that it makes with the mke2fs of PATH.
run_fsarchiver() {
  source_tree
  truncate -s 64M from to.ext4
  /usr/sbin/mke2fs -q -t ext4 -L data -d root from
  local from to
  from=$(losetup -f --show from)
  to=$(losetup -f --show to.ext4)
  local code=0
  fsarchiver savefs -o saved.fsa "$from" && fsarchiver restfs saved.fsa id=0,dest="$to" || code=$?
  losetup -d "$from" "$to"
  return $code
}

# Clones a volume that the mke2fs of PATH has made, after the e2fsck of PATH.
run_partclone() {
  source_tree
  truncate -s 64M from.img to.ext4
  mke2fs -q -t ext4 -d root from.img
  e2fsck -fp from.img
  partclone.extfs -c -s from.img -o saved -L clone.log
  partclone.extfs -r -s saved -O to.ext4 -L restore.log -C
}

# As PiShrink and its like do: check, shrink, cut, grow again.
run_shrinker() {
  source_tree
  truncate -s 256M out.ext4
  mkfs.ext4 -q -L data -d root out.ext4
  local device
  device=$(losetup -f --show out.ext4)
  local code=0
  {
    e2fsck -pf "$device" && tune2fs -l "$device" | grep -q 'Block count' &&
      resize2fs -p "$device" "$(resize2fs -P "$device" 2>/dev/null | cut -d: -f2 | tr -d ' ')" &&
      e2fsck -fy "$device" && resize2fs "$device" && tune2fs -L shrunk -m 1 "$device" && e2label "$device"
  } || code=$?
  losetup -d "$device"
  return $code
}

# As first boots do: grow a mounted root, name it.
run_firstboot() {
  source_tree
  truncate -s 64M out.ext4
  mkfs.ext4 -q -d root out.ext4
  local device code=0
  device=$(losetup -f --show out.ext4)
  mkdir at
  mount "$device" at
  tune2fs -L booted "$device" && e2label "$device" | grep -qx booted && tune2fs -c 5 -m 2 "$device" || code=$?
  umount at
  losetup -d "$device"
  e2fsck -p out.ext4 || code=$?
  return $code
}

# As mkosi makes its read-only root: from a tree, then as small as it goes.
run_minimized() {
  source_tree
  truncate -s 256M out.ext4
  mkfs.ext4 -I 256 -L root -M / -d root out.ext4
  resize2fs -M out.ext4
  [ "$(stat -c %s out.ext4)" -lt 33554432 ]
}

# Grows and shrinks a volume with quota, whose use the judge compares.
run_quota() {
  source_tree
  truncate -s 128M out.ext4
  mkfs.ext4 -q -O quota,project -d root out.ext4
  e2fsck -fp out.ext4
  resize2fs out.ext4 32M && truncate -s 300M out.ext4 && resize2fs out.ext4 && e2fsck -fp out.ext4
}

compare run_genimage genimage
compare run_fsarchiver fsarchiver
compare run_partclone partclone.extfs
compare run_shrinker losetup
compare run_firstboot losetup
compare run_minimized losetup
compare run_quota losetup
# These need more of the host than many have. mkosi and debos call what run_minimized and genimage do.
needs() {
  if ! command -v "$1" >/dev/null; then
    echo "$1: not installed"
  elif ! [ -e "$2" ]; then
    echo "$1: not run: $3"
  else
    echo "$1: not run: by hand, with the links of docs/how-to/e2fsprogs.md first in PATH"
  fi
}
needs mkosi /run/systemd/system "systemd-nspawn needs a running systemd"
needs debos /run/udev/control "it waits for udev"
needs virt-make-fs /boot/vmlinuz "its appliance needs a kernel, and has programs of its own"
[ $ran -gt 0 ] || { echo "nothing was run"; exit 1; }
exit $failed
