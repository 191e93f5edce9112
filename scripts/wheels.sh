#!/usr/bin/env bash
# Wheels of the Python package in dist/: abi3 (CPython 3.9 and later) for manylinux and musllinux, x86_64 and aarch64, linked by zig, and those of
# the interpreters without a global lock. Wheels of this machine are installed in new virtual environments of the oldest and the newest
# CPython, and tested there.
#   scripts/wheels.sh              builds and tries
#   scripts/wheels.sh build [TARGET...]
#   scripts/wheels.sh try
# OLDEST (3.9), NEWEST (3.14) and FREE (3.14t) are versions or paths of interpreters. Those of pyenv and of the
# system are found, and uv installs others. An empty FREE leaves out the last one; PyO3 needs 3.14t or later.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
# A directory of its own, so that other builds do not wait for these.
export CARGO_TARGET_DIR=$target/wheels CARGO_INCREMENTAL=0
OLDEST=${OLDEST:-3.9} NEWEST=${NEWEST:-3.14} FREE=${FREE-3.14t}
tools=$target/wheels/tools
dist=$root/dist
all=(x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu x86_64-unknown-linux-musl aarch64-unknown-linux-musl)

tools() {
    [ -x "$tools/bin/uv" ] || { "${PYTHON:-python3}" -m venv "$tools" && "$tools/bin/pip" install --quiet uv maturin ziglang; }
    export PATH=$tools/bin:$PATH
}

# Prints the path of an interpreter: one of pyenv, one that uv finds, or one that uv installs.
interpreter() {
    local found
    case $1 in */*) echo "$1"; return ;; esac
    for found in "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        if [ -x "$found" ]; then
            echo "$found"
            return
        fi
    done
    uv python find --no-project "$1" 2>/dev/null || { uv python install --quiet "$1" && uv python find --no-project "$1"; }
}

build() {
    local triple compatibility
    rustup target add "$@" >/dev/null 2>&1
    cd "$root/bindings/python"
    for triple; do
        compatibility=manylinux2014
        [[ $triple != *musl ]] || compatibility=musllinux_1_2
        maturin build --quiet --release --strip --zig --target "$triple" --compatibility "$compatibility" --out "$dist"
    done
    # A build for an interpreter without a global lock does not use the stable interface, so it is one for each version.
    if [[ -n $FREE && " $* " = *" x86_64-unknown-linux-gnu "* ]]; then
        maturin build --quiet --release --strip --zig --target x86_64-unknown-linux-gnu --compatibility manylinux2014 --out "$dist" \
            --interpreter "$(interpreter "$FREE")"
    fi
    cd "$root"
}

# try_on VERSION [PACKAGE...]: the tests with the installed wheel, where the source is out of sight.
try_on() {
    local version=$1 scratch
    shift
    scratch=$(mktemp -d)
    uv venv --quiet --python "$(interpreter "$version")" "$scratch/venv"
    uv pip install --quiet --python "$scratch/venv/bin/python" --find-links "$dist" --no-index extant
    uv pip install --quiet --python "$scratch/venv/bin/python" pytest fsspec "$@"
    cp -r "$root/bindings/python/tests" "$scratch/tests"
    mkdir -p "$scratch/docs"
    (cd "$scratch" && venv/bin/python -c 'import sys, extant; print(sys.version, extant.__file__)' &&
        venv/bin/python -m pytest -q -p no:cacheprovider tests/test_volume.py tests/test_changes.py tests/test_interface.py \
            tests/test_examples.py --deselect tests/test_examples.py::test_the_page_runs)
    rm -rf "$scratch"
}

try() {
    try_on "$OLDEST"
    try_on "$NEWEST"
    # The eight threads of the tests run at once here.
    [ -z "$FREE" ] || PYTHON_GIL=0 try_on "$FREE"
    ls -l "$dist"/*.whl
}

tools
case ${1:-both} in
build) shift; build "${@:-${all[@]}}" ;;
try) try ;;
both) build "${all[@]}"; try ;;
*) echo "wheels.sh: usage: wheels.sh [build [TARGET...]|try]" >&2; exit 2 ;;
esac
