#!/usr/bin/env bash
# Builds a Debian package of the command and tests it: lintian, then installation, use and removal in a new Debian root.
#   scripts/deb.sh build   makes target/debian/extant_*.deb and shows it to lintian, whose errors are errors
#   scripts/deb.sh try     installs, tests and removes the package in a root of its own; needs root, and a mirror of Debian
#   scripts/deb.sh         both
# EXTANT=file packs a command that is built already. SUITE and MIRROR choose the Debian of the root: this
# system's if it is a Debian, else stable. Missing tools are installed: dpkg-dev, lintian, mmdebstrap by apt, cargo-deb by cargo.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
DEBIAN=$CARGO_TARGET_DIR/debian
MIRROR=${MIRROR:-http://deb.debian.org/debian}

fail() { echo "deb: $*" >&2; exit 1; }
say() { printf '%4d s  %s\n' "$SECONDS" "$*"; }

# need TOOL PACKAGE
need() {
  command -v "$1" >/dev/null && return
  local sudo=
  [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -q >/dev/null
  $sudo apt-get install -y -q --no-install-recommends "$2" >/dev/null
}

build() {
  local stage=$CARGO_TARGET_DIR/release/deb
  need dpkg-shlibdeps dpkg-dev
  need lintian lintian
  command -v cargo-deb >/dev/null || cargo install --quiet --locked cargo-deb
  rm -rf "$stage" "$DEBIAN"
  ZSHDIR=/usr/share/zsh/vendor-completions \
    make --silent install DESTDIR="$stage" PREFIX=/usr SBINDIR=/usr/sbin EXTANT="${EXTANT:-}"
  gzip -9n "$stage"/usr/share/man/man1/*.1
  for page in "$stage"/usr/share/man/man8/*.8; do
    ln -s ../man1/extant-mount.1.gz "$page.gz"
    rm "$page"
  done
  mkdir -p "$stage/usr/share/doc/extant"
  gzip -9n <CHANGELOG.md >"$stage/usr/share/doc/extant/changelog.gz"
  # Links of the same directory tree are relative in packages.
  for helper in "$stage"/usr/sbin/*; do ln -sf ../bin/extant "$helper"; done
  cargo-deb deb --quiet --no-build --no-strip -p extant-cli -o "$DEBIAN/"
  lintian --fail-on error "$DEBIAN"/extant_*.deb
  packed "$stage"
  say "made $(cd "$DEBIAN" && ls extant_*.deb), $(du -h "$DEBIAN"/extant_*.deb | cut -f1)"
}

# Checks that the package has all files that `make install` installs, except the list of them.
packed() {
  local missing
  missing=$(comm -23 <(cd "$1" && find . ! -type d ! -path ./usr/share/extant/installed | sort) \
    <(dpkg-deb --fsys-tarfile "$DEBIAN"/extant_*.deb | tar t | sort))
  [ -z "$missing" ] || fail "Cargo.toml has no asset for: $missing"
}

suite() {
  . /etc/os-release
  [ "$ID" = debian ] && echo "${VERSION_CODENAME:-sid}" || echo stable
}

# Makes a directory the root of a mount name space of its own and runs the test of the package. It is a real root
# directory, not a chroot, since the kernel refuses user name spaces in a chroot.
enter() {
  mount --make-rprivate /
  mount --bind "$1" "$1"
  cd "$1"
  mount -t proc proc proc
  mount --rbind /dev dev
  # Parts of a running system: the table of mounts, and a FUSE device for everybody.
  ln -sf ../proc/self/mounts etc/mtab
  mknod -m 666 tmp/fuse c 10 229
  mount --bind tmp/fuse dev/fuse
  pivot_root . mnt
  umount -l /mnt
  trap 'umount -lq /mnt /home/someone/mnt || true' EXIT
  bash /tmp/try
}

try() {
  local deb
  deb=$(ls "$DEBIAN"/extant_*.deb) || fail "there is no package: scripts/deb.sh build"
  [ "$(id -u)" = 0 ] || fail "trying the package takes root"
  need mmdebstrap mmdebstrap
  work=$(mktemp -d)
  trap 'rm -rf --one-file-system "$work"' EXIT
  chmod 755 "$work"
  local suite=${SUITE:-$(suite)}
  mmdebstrap --quiet --mode=root --variant=apt --include=mount "$suite" "$work/root" "$MIRROR"
  say "a root of Debian $suite"
  cp "$deb" "$work/root/tmp/extant.deb"
  cp packaging/debian/try "$work/root/tmp/try"
  unshare --mount bash -euo pipefail -c "$(declare -f enter); enter '$work/root'"
}

case ${1:-both} in
  build) build ;;
  try) try ;;
  both) build; try ;;
  *) fail "usage: deb.sh [build|try]" ;;
esac
