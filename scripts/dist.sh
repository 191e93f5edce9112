#!/usr/bin/env bash
# Builds static programs that run on any Linux, and checks the crates that build on other systems.
#
#   scripts/dist.sh [ARCHITECTURE...]
#
# builds `extant` and `extant-remote` for x86_64 and aarch64, or the named architectures, against musl as
# dist/extant-ARCHITECTURE and dist/extant-remote-ARCHITECTURE, and tests them: those for another processor under qemu-user.
#
#   scripts/dist.sh --check
#
# checks the format, the engine and mkfs for macOS and FreeBSD.
#
# The C parts (zstd, mimalloc) are compiled by zig, which cargo-zigbuild drives: both come from PyPI into a virtual environment, if
# cargo-zigbuild is not installed. The standard library comes from rustup; where rustup cannot get it, it is built from the sources
# in Debian's packages rustc-web, cargo-web and rust-web-src.
set -euo pipefail
cd "$(dirname "$0")/.."

target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")
# The program for x86_64 has 7,898,384 bytes, of which the names of e2fsprogs' programs, prompts and the formats of images and
# archives are a quarter. Unwinding at a panic and its tables would add 2.2 MB. An engine of opt-level "s" would save 360 kB; an
# export of a tree then took a third more user time (three runs each).
most=8400000
# Of zstd's ways to search for matches, its default level takes one of the first two; C needs no tables to unwind.
export CFLAGS="-fno-asynchronous-unwind-tables"
for way in GREEDY LAZY LAZY2 BTLAZY2 BTOPT BTULTRA; do CFLAGS+=" -DZSTD_EXCLUDE_${way}_BLOCK_COMPRESSOR"; done
standard=()

fail() {
    echo "dist.sh: $*" >&2
    exit 1
}

zig() {
    command -v cargo-zigbuild >/dev/null && return
    local place=$target_dir/zig
    if [ ! -x "$place/bin/cargo-zigbuild" ]; then
        python3 -m venv "$place"
        "$place/bin/pip" install --quiet cargo-zigbuild ziglang
    fi
    export PATH=$place/bin:$PATH CARGO_ZIGBUILD_PYTHON_PATH=$place/bin/python
}

# The standard library for a target, or how to build it.
library() {
    if command -v rustup >/dev/null && timeout 120 rustup target add "$1" >/dev/null 2>&1; then
        return
    fi
    [ -e /usr/lib/rust*/src/*/library/std ] || [ -d /usr/src/rustc-*/library ] ||
        [ -e "$(/usr/bin/rustc --print sysroot 2>/dev/null)/lib/rustlib/src/rust/library" ] ||
        fail "no standard library for $1: rustup cannot get it, and the package rust-web-src is not there"
    # Another compiler, so its output stays apart.
    export RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR=$target_dir/cross
    export PATH=${PATH/\/usr\/bin:/} && PATH=$(dirname "$(command -v cargo-zigbuild)"):/usr/bin:$PATH
    standard=(-Zbuild-std=std,panic_abort)
}

build() {
    local triple=$1-unknown-linux-musl out=dist/extant-$1 remote=dist/extant-remote-$1
    library "$triple"
    local flags="${standard:+-C link-self-contained=no }-C target-feature=+crt-static"
    RUSTFLAGS="$flags -C link-arg=-Wl,-T,scripts/no-unwind-tables.ld" \
        cargo-zigbuild zigbuild --profile dist -p extant-cli --target "$triple" ${standard[@]+"${standard[@]}"}
    RUSTFLAGS="$flags" \
        cargo-zigbuild zigbuild --profile dist-remote -p extant-remote --target "$triple" ${standard[@]+"${standard[@]}"}
    install -D -m 755 "${CARGO_TARGET_DIR:-$target_dir}/$triple/dist/extant" "$out"
    install -D -m 755 "${CARGO_TARGET_DIR:-$target_dir}/$triple/dist-remote/extant-remote" "$remote"
    local size
    size=$(stat -c %s "$out")
    [ "$size" -le "$most" ] || fail "$out has $size bytes, more than $most"
    try "$1" "$out" "$remote"
    echo "$out: $size bytes; $remote: $(stat -c %s "$remote") bytes"
}

# Makes images with the programs of an architecture, one of them in objects, and has e2fsck look at the other.
try() {
    local run=() work program objects
    [ "$1" = "$(uname -m)" ] || run=("qemu-$1-static")
    for program in "$2" "$3"; do
        file -L "$program" 2>/dev/null | grep -q "dynamically linked" && fail "$program is not static"
    done
    work=$(mktemp -d)
    mkdir -p "$work/tree/a/b"
    echo text >"$work/tree/a/b/file"
    ${run[@]+"${run[@]}"} "$2" mkfs "$work/image" --from "$work/tree" >/dev/null
    ${run[@]+"${run[@]}"} "$2" cp "$work/tree/a/b/file" "$work/image:/copy"
    [ "$(${run[@]+"${run[@]}"} "$2" cat "$work/image:/copy")" = text ] || fail "$2 does not read what it wrote"
    e2fsck -fn "$work/image" >/dev/null 2>&1 || fail "e2fsck finds fault with what $2 wrote"
    # A damaged image of a format that a library reads ends with an error, although a panic cannot be caught here.
    ${run[@]+"${run[@]}"} "$2" mkfs "$work/image.qcow2" --from "$work/tree" >/dev/null
    local at code clusters
    clusters=$(seq 65536 65536 $(($(stat -c %s "$work/image.qcow2") - 1)))
    for at in $(seq 0 4 100) $clusters; do
        cp "$work/image.qcow2" "$work/damaged.qcow2"
        printf '\377\377\377\377\377\377\377\377' | dd of="$work/damaged.qcow2" bs=1 seek="$at" conv=notrunc status=none
        code=0
        timeout 60 ${run[@]+"${run[@]}"} "$2" cat "$work/damaged.qcow2:/a/b/file" >/dev/null 2>&1 || code=$?
        [ "$code" -lt 124 ] || fail "$2 ends with $code, for an image that is damaged at $at"
    done
    objects=file+objects://$work/objects
    # Only this architecture's programs start each other.
    if [ -z "${run[*]}" ]; then
        EXTANT_REMOTE=$3 "$2" mkfs "$objects" --size 16M --from "$work/tree" >/dev/null
        [ "$(EXTANT_REMOTE=$3 "$2" cat "$objects:/a/b/file")" = text ] || fail "$3 does not serve what it stored"
    else
        "${run[@]}" "$3" --version >/dev/null
    fi
    rm -rf "$work"
}

zig
if [ "${1:-}" = --check ]; then
    for triple in x86_64-apple-darwin x86_64-unknown-freebsd; do
        library "$triple"
        cargo-zigbuild check -p ext4-format -p extant-blockdev -p extant --target "$triple" ${standard[@]+"${standard[@]}"}
        echo "$triple: the format, the engine and mkfs build"
    done
    exit
fi
[ $# -gt 0 ] || set -- x86_64 aarch64
for architecture in "$@"; do build "$architecture"; done
