#!/usr/bin/env bash
# The first minutes of five users, each in a new Debian root: an ordinary user, root in CI, an installer of the package, a
# user with images of others, and a user with a full disk. Prints their commands, the output, and the seconds until it
# worked.
#
#   scripts/first-use.sh [user|ci|package|foreign|full]...
#
# Needs root, mmdebstrap and a mirror of Debian. EXTANT=file is the command to test; the root is kept below
# ${XDG_CACHE_HOME:-~/.cache}/extant-first-use for the next time.
set -euo pipefail
cd "$(dirname "$0")/.."

extant=$(realpath "${EXTANT:-${CARGO_TARGET_DIR:-target}/release/extant}")
suite=${SUITE:-bookworm}
cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/extant-first-use
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
chmod 755 "$work"

# Inside a mount name space of its own: makes a directory the root, and runs the script of a user as that user.
enter() {
    local root=$1 who=$2
    mount --make-rprivate /
    mount --bind "$root" "$root"
    cd "$root"
    mount -t proc proc proc
    if [ "$who" = ci ]; then
        # As in a container: no FUSE.
        mount -t tmpfs dev dev
        for node in null zero full random urandom; do touch "dev/$node" && mount --bind "/dev/$node" "dev/$node"; done
        ln -s /proc/self/fd dev/fd
    else
        # A FUSE device for everybody, as running systems have it.
        mount --rbind /dev dev
        mknod -m 666 tmp/fuse c 10 229
        mount --bind tmp/fuse dev/fuse
    fi
    mount -t tmpfs -o size=24m,mode=1777 small small
    ln -sf ../proc/self/mounts etc/mtab
    pivot_root . mnt
    umount -l /mnt
    if [ "$who" = user ]; then
        exec setpriv --reuid 1000 --regid 1000 --clear-groups env -i HOME=/home/someone USER=someone TERM=dumb \
            PATH=/usr/local/bin:/usr/bin:/bin bash /first-use/user.sh
    fi
    exec env -i HOME=/root TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash "/first-use/$who.sh"
}

if [ ! -e "$cache/$suite.tar" ]; then
    mkdir -p "$cache"
    mmdebstrap --quiet --mode=root --variant=apt --include=mount,fuse3,uidmap,e2fsprogs "$suite" "$work/new.tar" \
        "${MIRROR:-http://deb.debian.org/debian}"
    mv "$work/new.tar" "$cache/$suite.tar"
fi

failed=
[ $# -gt 0 ] || set -- user ci package foreign full
for who in "$@"; do
    echo "== $(sed -n '1s/^# //p' "scripts/first-use/$who.sh" 2>/dev/null || echo "$who")"
    start=$SECONDS
    if [ "$who" = package ]; then
        EXTANT=$extant scripts/deb.sh || failed="$failed $who"
    else
        root=$work/$who
        mkdir "$root"
        tar xpf "$cache/$suite.tar" -C "$root"
        install -m 755 "$extant" "$root/usr/local/bin/extant"
        cp -r scripts/first-use "$root/first-use"
        mkdir -p "$root/small" "$root/home/someone"
        echo "someone:x:1000:1000::/home/someone:/bin/bash" >>"$root/etc/passwd"
        echo "someone:x:1000:" >>"$root/etc/group"
        echo "someone:100000:65536" | tee "$root/etc/subuid" >"$root/etc/subgid"
        chown 1000:1000 "$root/home/someone"
        unshare --mount bash -euo pipefail -c "$(declare -f enter); enter '$root' '$who'" || failed="$failed $who"
        rm -rf --one-file-system "$root"
    fi
    echo "  $who: $((SECONDS - start)) s in all"
done
[ -z "$failed" ] || { echo "first-use.sh: failed:$failed" >&2; exit 1; }
