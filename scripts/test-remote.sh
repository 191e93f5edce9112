#!/usr/bin/env bash
# Tests of images on servers and stores, with the servers that they need: NBD servers and Ceph from Debian, moto (S3) from PyPI,
# s3s-fs (S3) from crates.io.
# All state is in the target directory and in temporary directories; the tests end the servers that they start.
#
#   scripts/test-remote.sh           everything
#   scripts/test-remote.sh --tools   installs the servers only, but for Ceph and s3s-fs
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/steps.sh
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
cargo=${CARGO:-cargo}

# Installs the packages of tools that are missing, named as TOOL:PACKAGE.
install_missing() {
    local packages=() sudo=() tool
    for tool in "$@"; do
        command -v "${tool%%:*}" >/dev/null || packages+=("${tool##*:}")
    done
    [ ${#packages[@]} -gt 0 ] || return 0
    [ "$(id -u)" = 0 ] || sudo=(sudo)
    ${sudo[@]+"${sudo[@]}"} apt-get update -q
    ${sudo[@]+"${sudo[@]}"} apt-get install -y -q --no-install-recommends "${packages[@]}"
}

install_missing qemu-nbd:qemu-utils qemu-storage-daemon:qemu-system-common nbdkit:nbdkit nbd-server:nbd-server openssl:openssl e2fsck:e2fsprogs
if ! command -v moto_server >/dev/null; then
    place=$target/tools/moto
    [ -x "$place/bin/moto_server" ] || { python3 -m venv "$place" && "$place/bin/pip" install --quiet "moto[server]==5.2.1"; }
    export PATH=$PATH:$place/bin
fi
[ "${1:-}" != --tools ] || exit 0

export CI=${CI:-true}
step "build" "$cargo" build --profile test-fast -p extant-remote -p extant-cli
install_missing ceph-mon:ceph-mon ceph-mgr:ceph-mgr ceph-osd:ceph-osd rbd:ceph-common
export EXTANT_CEPH=$target/ceph
end() {
    scripts/ceph-mini.sh stop "$EXTANT_CEPH"
    if declare -F steps_table >/dev/null; then steps_table; fi
}
trap end EXIT
if ! command -v s3s-fs >/dev/null; then
    place=$target/tools/s3s-fs
    [ -x "$place/bin/s3s-fs" ] || step "build s3s-fs" env -u CARGO_TARGET_DIR \
        "$cargo" install --quiet --locked --debug --features binary --root "$place" s3s-fs@0.14.1
    export PATH=$PATH:$place/bin
fi
step "start Ceph" scripts/ceph-mini.sh start "$EXTANT_CEPH"
step "extant-remote" "$cargo" test --profile test-fast -p extant-remote
step "extant-nbd" "$cargo" test --profile test-fast -p extant-nbd
step "extant-mmp" "$cargo" test --profile test-fast -p extant-mmp
step "commands" "$cargo" test --profile test-fast -p extant-cli --test it -- cli::remote cli::push cli::round_trips mount::remote
