#!/usr/bin/env bash
# Installs libextant: shared and static library, headers, pkg-config file and man page.
#   scripts/c-install.sh LIBEXTANT.A        the static library that cargo built
# PREFIX (/usr/local), LIBDIR (PREFIX/lib), DESTDIR (a prefix of all paths) and CC are variables. The shared library is linked here from
# the static one, because a version script and rustc's own list of symbols exclude each other.
set -euo pipefail
built=$(realpath "$1")
cd "$(dirname "$0")/../bindings/c"
PREFIX=${PREFIX:-/usr/local}
LIBDIR=${LIBDIR:-$PREFIX/lib}
DESTDIR=${DESTDIR:-}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
lib=$DESTDIR$LIBDIR
mkdir -p "$lib/pkgconfig" "$DESTDIR$PREFIX/include" "$DESTDIR$PREFIX/share/man/man3"
${CC:-cc} -shared -o "$lib/libextant.so.1.$version" -Wl,-soname,libextant.so.1 -Wl,--version-script=extant.map \
    -Wl,--gc-sections -Wl,--no-undefined -Wl,--whole-archive "$built" -Wl,--no-whole-archive -lgcc_s -lpthread -lm -ldl -lc
if [ -n "${STRIP:-}" ]; then "$STRIP" --strip-unneeded "$lib/libextant.so.1.$version"; fi
ln -sf "libextant.so.1.$version" "$lib/libextant.so.1"
ln -sf libextant.so.1 "$lib/libextant.so"
install -m 644 "$built" "$lib/libextant.a"
if [ -n "${STRIP:-}" ]; then "$STRIP" --strip-debug "$lib/libextant.a"; fi
install -m 644 include/extant.h include/extant.hpp "$DESTDIR$PREFIX/include/"
install -m 644 extant.3 "$DESTDIR$PREFIX/share/man/man3/"
sed -e "s|@prefix@|$PREFIX|" -e "s|@libdir@|$LIBDIR|" -e "s|@version@|$version|" extant.pc.in >"$lib/pkgconfig/extant.pc"
