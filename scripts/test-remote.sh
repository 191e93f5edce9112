#!/usr/bin/env bash
# Tests of images on servers and stores, with the servers that they need: NBD servers from Debian, moto (S3) from PyPI.
# All state is in the target directory and in temporary directories; the tests end the servers that they start.
#
#   scripts/test-remote.sh           everything
#   scripts/test-remote.sh --tools   installs the servers only
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/steps.sh
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
cargo=${CARGO:-cargo}

packages=
for tool in qemu-nbd:qemu-utils qemu-storage-daemon:qemu-system-common nbdkit:nbdkit nbd-server:nbd-server openssl:openssl e2fsck:e2fsprogs; do
    command -v "${tool%%:*}" >/dev/null || packages="$packages ${tool##*:}"
done
if [ -n "$packages" ]; then
    sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    # shellcheck disable=SC2086 # a list of names
    $sudo apt-get update -q && $sudo apt-get install -y -q --no-install-recommends $packages
fi
if ! command -v moto_server >/dev/null; then
    place=$target/tools/moto
    [ -x "$place/bin/moto_server" ] || { python3 -m venv "$place" && "$place/bin/pip" install --quiet "moto[server]==5.2.1"; }
    export PATH=$PATH:$place/bin
fi
[ "${1:-}" != --tools ] || exit 0

export CI=${CI:-true}
step "build" "$cargo" build --profile test-fast -p extant-remote -p extant-cli
step "extant-remote" "$cargo" test --profile test-fast -p extant-remote
step "extant-nbd" "$cargo" test --profile test-fast -p extant-nbd
step "extant-mmp" "$cargo" test --profile test-fast -p extant-mmp
step "commands" "$cargo" test --profile test-fast -p extant-cli --test it -- cli::remote cli::push
