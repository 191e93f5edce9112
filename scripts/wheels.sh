#!/usr/bin/env bash
# Wheels of the Python package in dist/: abi3 (CPython 3.9 and later), and those of the interpreters without a global lock, which have no stable
# interface. Both kinds are for manylinux and musllinux, x86_64 and aarch64. zig links them.
#   scripts/wheels.sh              builds and tries
#   scripts/wheels.sh build [TARGET...]
#   scripts/wheels.sh try
# The wheels of this machine are installed in new virtual environments of the oldest and the newest CPython and of one without a global lock, and
# tested there. OLDEST (3.9), NEWEST (3.15) and FREE (3.14t) are versions or paths of interpreters. Those of pyenv and of the system are found, and
# uv installs others. An empty FREE leaves out the last kind; PyO3 needs 3.14t or later. As root, with mmdebstrap:
#   - an interpreter that is not found comes from the packages of Debian (SUITE, sid), in a new root;
#   - with qemu-user-static, the wheel for aarch64 is tested with Debian's python3.11 for that processor.
# Each test that cannot run is named.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
# A directory of its own, so that other builds do not wait for these.
export CARGO_TARGET_DIR=$target/wheels CARGO_INCREMENTAL=0
OLDEST=${OLDEST:-3.9} NEWEST=${NEWEST:-3.15} FREE=${FREE-3.14t} SUITE=${SUITE:-sid}
MIRROR=${MIRROR:-http://deb.debian.org/debian}
tools=$target/wheels/tools
dist=$root/dist
all=(x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu x86_64-unknown-linux-musl aarch64-unknown-linux-musl)

tools() {
    [ -x "$tools/bin/uv" ] || { "${PYTHON:-python3}" -m venv "$tools" && "$tools/bin/pip" install --quiet uv maturin ziglang; }
    export PATH=$tools/bin:$PATH
}

# Prints the path of an interpreter: one of pyenv, one that uv finds, or one that uv installs. Fails if there is none.
interpreter() {
    local found
    case $1 in */*) echo "$1"; return ;; esac
    for found in "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        if [ -x "$found" ]; then
            echo "$found"
            return
        fi
    done
    uv python find --no-project "$1" 2>/dev/null && return
    uv python install --quiet "$1" 2>/dev/null && uv python find --no-project "$1"
}

build() {
    local triple compatibility
    rustup target add "$@" >/dev/null 2>&1
    cd "$root/bindings/python"
    for triple; do
        compatibility=manylinux2014
        [[ $triple != *musl ]] || compatibility=musllinux_1_2
        for kind in '' ${FREE:+"$FREE"}; do
            # Maturin knows the layout of an interpreter that this machine does not have.
            maturin build --quiet --release --strip --zig --target "$triple" --compatibility "$compatibility" --out "$dist" \
                ${kind:+--interpreter "python$kind"}
        done
    done
    cd "$root"
}

# The tests and their page, laid out as in the repository, without the source of the package.
lay_out() {
    mkdir -p "$1/bindings/python" "$1/docs/how-to"
    cp -r bindings/python/tests "$1/bindings/python"
}

tests=(tests/test_volume.py tests/test_changes.py tests/test_interface.py tests/test_examples.py --deselect tests/test_examples.py::test_the_page_runs)

# try_on VERSION PYTHON: the tests with the installed wheel.
try_on() {
    local scratch=$work/$1
    uv venv --quiet --python "$2" "$scratch/venv"
    uv pip install --quiet --python "$scratch/venv/bin/python" --find-links "$dist" --no-index extant
    uv pip install --quiet --python "$scratch/venv/bin/python" pytest fsspec
    lay_out "$scratch"
    cd "$scratch/bindings/python"
    "$scratch/venv/bin/python" -c 'import sys, extant; print(sys.version, extant.__file__)'
    "$scratch/venv/bin/python" -m pytest -q -p no:cacheprovider "${tests[@]}"
    cd "$root"
}

# Why there can be no root of Debian, or nothing.
no_debian() {
    [ "$(id -u)" = 0 ] || { echo "a root of Debian needs root"; return; }
    command -v mmdebstrap >/dev/null || echo "mmdebstrap is missing: apt install mmdebstrap"
}

# in_debian VERSION: the same with an interpreter of Debian's packages, in a new root.
in_debian() {
    local debian=$work/debian status=0 reason
    reason=$(no_debian)
    [ -z "$reason" ] || { echo "wheels.sh: CPython $1 was not tried: $reason"; return; }
    # The mirror may be a copy of an earlier day.
    mmdebstrap --quiet --mode=root --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' --include="python$1-venv" \
        "$SUITE" "$debian" "$MIRROR"
    mkdir "$debian/wheels"
    cp "$dist"/extant-*abi3-manylinux*"$(uname -m)".whl "$debian/wheels"
    "$tools/bin/pip" download --quiet --dest "$debian/wheels" pytest fsspec
    lay_out "$debian/try"
    mount -t proc proc "$debian/proc"
    chroot "$debian" bash -euc '
        "python$1" -m venv /venv
        /venv/bin/pip install --quiet --no-index --find-links /wheels extant pytest fsspec
        cd /try/bindings/python
        shift
        /venv/bin/python -c "import sys, extant; print(sys.version, extant.__file__)"
        /venv/bin/python -m pytest -q -p no:cacheprovider "$@"' bash "$1" "${tests[@]}" || status=$?
    umount "$debian/proc"
    return $status
}

# The wheel for aarch64 under emulation, without the tests that start a second interpreter.
on_aarch64() {
    local debian=$work/aarch64 reason
    reason=$(no_debian)
    command -v qemu-aarch64-static >/dev/null || reason="qemu-aarch64-static is missing: apt install qemu-user-static"
    [ -z "$reason" ] || { echo "wheels.sh: the wheel for aarch64 was not tried: $reason"; return; }
    mmdebstrap --quiet --mode=root --variant=extract --arch=arm64 --include=python3.11 bookworm "$debian" "$MIRROR"
    uv pip install --quiet --target "$debian/site" --python-platform aarch64-manylinux2014 --python-version 3.11 \
        "$dist"/extant-*abi3-manylinux*aarch64.whl pytest fsspec
    lay_out "$debian/try"
    cd "$debian/try/bindings/python"
    PYTHONPATH=$debian/site qemu-aarch64-static -L "$debian" "$debian/usr/bin/python3.11" -m pytest -q -p no:cacheprovider \
        -k "not ctrl_c and not killed and not fork" "${tests[@]}"
    cd "$root"
}

# No CPython for musl is in the packages of Debian. Every function that the wheel takes must be one of CPython or of Debian's musl.
for_musl() {
    local musl unknown
    musl=/lib/ld-musl-$(uname -m).so.1
    [ -e "$musl" ] || { echo "wheels.sh: the wheel for musl was not checked: musl is missing: apt install musl"; return; }
    (cd "$work" && python3 -m zipfile -e "$dist"/extant-*abi3-musllinux*"$(uname -m)".whl musl)
    unknown=$(comm -23 <(nm -D --undefined-only "$work"/musl/extant/*.so | awk '$1 == "U" && $2 !~ /^_?Py/ { print $2 }' | sort) \
        <(nm -D --defined-only "$musl" | awk '{ print $3 }' | sort))
    [ -z "$unknown" ] || { echo "wheels.sh: not in musl:" $unknown >&2; exit 1; }
    echo "wheels.sh: the wheel for musl was not tried, because there is no CPython for musl: musl has all functions that it needs"
}

try() {
    local version found
    work=$(mktemp -d)
    trap 'rm -rf --one-file-system "$work"' EXIT
    for version in "$OLDEST" "$NEWEST"; do
        if found=$(interpreter "$version"); then
            try_on "${version##*/}" "$found"
        else
            in_debian "$version"
        fi
    done
    if [ -n "$FREE" ] && found=$(interpreter "$FREE"); then
        # The eight threads of the tests run at once here.
        PYTHON_GIL=0 try_on "${FREE##*/}" "$found"
    elif [ -n "$FREE" ]; then
        echo "wheels.sh: the wheel for CPython $FREE was not tried: there is no such interpreter, and uv cannot install it"
    fi
    [ "$(uname -m)" = aarch64 ] || on_aarch64
    for_musl
    ls -l "$dist"/*.whl
}

tools
case ${1:-both} in
build) shift; build "${@:-${all[@]}}" ;;
try) try ;;
both) build "${all[@]}"; try ;;
*) echo "wheels.sh: usage: wheels.sh [build [TARGET...]|try]" >&2; exit 2 ;;
esac
