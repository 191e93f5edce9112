#!/usr/bin/env bash
# Tests of images on servers and stores, with the servers that they need: NBD servers and Ceph from Debian, moto (S3) from PyPI,
# s3s-fs (S3) from crates.io, versitygw (S3) and fake-gcs-server (Google) by Go, Azurite (Azure) by npm.
# All state is in the target directory and in temporary directories; the tests end the servers that they start.
#
#   scripts/test-remote.sh           everything
#   scripts/test-remote.sh --short   NBD, directories, web servers and one S3 store: programs that `make test` builds and runs, too
#   scripts/test-remote.sh --tools   installs the servers of --short only
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
# The tests of commands, mounts and mount protection, and the package that is tested as a whole.
tests=(cli::io_timeout cli::overlay cli::remote cli::push cli::round_trips mount::remote mmp::)
packages="extant-nbd"
case ${1:-} in
    '') ;;
    --tools) exit ;;
    --short) exec scripts/test.sh --packages "$packages" "${tests[@]}" stores:: objects:: directory:: tls:: web:: ;;
    *) echo "usage: test-remote.sh [--short|--tools]" >&2; exit 2 ;;
esac

# Builds a store into tools/NAME of the target directory unless its program NAME is there. COMMAND is told the place by PLACE.
store() {
    local name=$1 maker=$2
    shift 2
    command -v "$name" >/dev/null && return
    PLACE=$target/tools/$name
    export PLACE PATH=$PATH:$PLACE/bin
    [ ! -x "$PLACE/bin/$name" ] || return 0
    command -v "$maker" >/dev/null || { echo "test-remote.sh: no $maker, which installs $name: its tests are left out" >&2; return 0; }
    step "install $name" "$@"
}
by_cargo() { env -u CARGO_TARGET_DIR "$cargo" install --quiet --locked --debug --features binary --root "$PLACE" "$1"; }
by_go() { GOBIN=$PLACE/bin go install "$1"; }
by_npm() { npm install --silent --no-audit --no-fund --prefix "$PLACE" "$1" && ln -s node_modules/.bin "$PLACE/bin"; }

export CI=${CI:-true}
store s3s-fs "$cargo" by_cargo s3s-fs@0.14.1
store versitygw go by_go github.com/versity/versitygw/cmd/versitygw@v1.8.0
store fake-gcs-server go by_go github.com/fsouza/fake-gcs-server@v1.56.1
# Later versions need Node.js 21.
store azurite-blob npm by_npm azurite@3.35.0
install_missing ceph-mon:ceph-mon ceph-mgr:ceph-mgr ceph-osd:ceph-osd rbd:ceph-common
export EXTANT_CEPH=$target/ceph
end() {
    scripts/ceph-mini.sh stop "$EXTANT_CEPH"
    if declare -F steps_table >/dev/null; then steps_table; fi
}
trap end EXIT
step "start Ceph" scripts/ceph-mini.sh start "$EXTANT_CEPH"
scripts/test.sh --packages "$packages extant-remote" "${tests[@]}"
