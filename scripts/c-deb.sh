#!/usr/bin/env bash
# Builds the Debian packages libextant1 and libextant-dev in target/debian, shows them to lintian, and compiles and runs a program with
# what they unpack to.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
debian=$target/debian
stage=$target/c/deb
version=$(sed -n 's/^version = "\(.*\)"/\1/p' bindings/c/Cargo.toml)-1
arch=$(dpkg --print-architecture)
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)

for tool in dpkg-deb:dpkg-dev lintian:lintian pkg-config:pkg-config; do
    command -v "${tool%:*}" >/dev/null && continue
    sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    $sudo apt-get update -q >/dev/null
    $sudo apt-get install -y -q --no-install-recommends "${tool#*:}" >/dev/null
done

if [ -z "${LIBEXTANT:-}" ]; then
    (cd bindings/c && CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=$target/c "${CARGO:-cargo}" build --quiet --release)
    LIBEXTANT=$target/c/release/libextant.a
fi
rm -rf "$stage" "$debian"/libextant*.deb
mkdir -p "$debian"
DESTDIR=$stage/all PREFIX=/usr LIBDIR=/usr/lib/$multiarch STRIP=strip scripts/c-install.sh "$LIBEXTANT"

# package NAME SECTION DEPENDS DESCRIPTION LONG FILE...: files are moved from the whole.
package() {
    local name=$1 section=$2 depends=$3 description=$4 long=$5 root=$stage/$1 file
    shift 5
    for file; do
        mkdir -p "$root/$(dirname "$file")"
        mv "$stage/all/$file" "$root/$file"
    done
    mkdir -p "$root/DEBIAN" "$root/usr/share/doc/$name"
    cp packaging/debian/copyright "$root/usr/share/doc/$name/copyright"
    gzip -9n <packaging/debian/changelog >"$root/usr/share/doc/$name/changelog.Debian.gz"
    cat >"$root/DEBIAN/control" <<EOF
Package: $name
Source: extant
Version: $version
Architecture: $arch
Multi-Arch: same
Section: $section
Priority: optional
Maintainer: $(sed -n 's/^ -- \(.*>\)  .*/\1/p' packaging/debian/changelog | head -1)
Installed-Size: $(du -sk "$root" | cut -f1)
Depends: $depends
Description: $description
 $long
EOF
    if [ "$name" = libextant1 ]; then
        echo "libextant 1 libextant1 (>= $version)" >"$root/DEBIAN/shlibs"
        echo "activate-noawait ldconfig" >"$root/DEBIAN/triggers"
    fi
    (cd "$root" && find usr -type f -exec md5sum {} + >DEBIAN/md5sums)
    chmod -R u=rwX,go=rX "$root"
    dpkg-deb --root-owner-group --build "$root" "$debian/" >/dev/null
}

lib=usr/lib/$multiarch
shared=$(cd "$stage/all" && echo "$lib"/libextant.so.1.*)
chmod 644 "$stage/all/$shared"
package libextant1 libs "libc6 (>= 2.36), libgcc-s1 (>= 4.2)" "ext4 images in process - shared library" \
    "Programs create, open, read and change ext4 images with it, without root." "$shared" "$lib/libextant.so.1"
gzip -9n "$stage/all/usr/share/man/man3/extant.3"
package libextant-dev libdevel "libextant1 (= $version)" "ext4 images in process - development files" \
    "Headers for C and C++, the static library, and the page extant(3)." "$lib/libextant.so" "$lib/libextant.a" \
    "$lib/pkgconfig/extant.pc" usr/include/extant.h usr/include/extant.hpp usr/share/man/man3/extant.3.gz
left=$(find "$stage/all" ! -type d)
[ -z "$left" ] || { echo "c-deb.sh: no package has $left" >&2; exit 1; }
lintian --fail-on error --suppress-tags initial-upload-closes-no-bugs "$debian"/libextant*.deb

# A program is compiled with what the packages unpack to.
try=$stage/try
mkdir "$try"
for deb in "$debian"/libextant*.deb; do dpkg-deb -x "$deb" "$try"; done
export PKG_CONFIG_SYSROOT_DIR=$try PKG_CONFIG_PATH=$try/$lib/pkgconfig
# shellcheck disable=SC2046
gcc -std=c11 -o "$try/test" bindings/c/tests/test.c -I"$try/usr/include" $(pkg-config --libs extant) -lpthread
mkdir "$try/images"
LD_LIBRARY_PATH=$try/$lib "$try/test" "$try/images"
ls -l "$debian"/libextant*.deb
