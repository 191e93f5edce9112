#!/usr/bin/env bash
# Fails if an open of a volume keeps memory, file descriptors or threads after its close.
#   scripts/leaks.sh            those of Python and C, without memray
#   scripts/leaks.sh python     1,000,000 opens (or OPENS) from Python, by what /proc says of the process
#   scripts/leaks.sh memray     1,000,000 opens (or OPENS) from Python under memray: no place that allocates has more live blocks with more opens
#   scripts/leaks.sh c          1,000,000 opens (or OPENS) from C, likewise; and 1,000 under valgrind: no block is lost, and as many are in use
#                               at the end as after 20
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-both}

in_python() {
    scripts/python.sh build
    . scripts/bindings-build.sh
    "$target/python/venv/bin/python" bindings/python/tests/leaks.py "${OPENS:-1000000}"
}

# Python allocates each object by malloc here, so that memray sees all of them. The allocator of the library shows as its mappings of memory.
under_memray() {
    local recording opens=${OPENS:-1000000} python
    scripts/python.sh build
    . scripts/bindings-build.sh
    python=$target/python/venv/bin/python
    "$python" -c 'import memray' 2>/dev/null || "$target/python/venv/bin/pip" install --quiet memray
    recording=$(mktemp)
    PYTHONMALLOC=malloc "$python" -m memray run --aggregate --quiet --force --output "$recording" bindings/python/tests/leaks.py "$opens"
    "$python" bindings/python/tests/leaks.py --memray "$recording" "$opens"
    rm -f "$recording"
}

in_c() {
    local prefix opens
    command -v valgrind >/dev/null || { echo "leaks.sh: valgrind is missing: apt install valgrind" >&2; exit 1; }
    prefix=$(scripts/c.sh build | tail -n 1)
    export LD_LIBRARY_PATH=$prefix/lib
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    gcc -std=c11 -Wall -Wextra -Werror -g -I"$prefix/include" -o "$scratch/leaks" bindings/c/tests/leaks.c -L"$prefix/lib" -lextant
    # In memory if there is such a file system: an eighth of the opens write, and would wait for a disk.
    images=$scratch
    [ ! -w /dev/shm ] || images=$(mktemp -d -p /dev/shm)
    trap 'rm -rf "$scratch" "$images"' EXIT
    "$scratch/leaks" "$images" "${OPENS:-1000000}"
    for opens in 20 1000; do
        valgrind --suppressions=bindings/c/tests/valgrind.supp --error-exitcode=9 --leak-check=full \
            --errors-for-leak-kinds=definite,indirect "$scratch/leaks" "$images" "$opens" 2>"$scratch/said" || { cat "$scratch/said"; exit 1; }
        sed -n 's/.*in use at exit: //p' "$scratch/said" | tee "$scratch/in-use-$opens" | sed "s/^/$opens opens from C, in use at exit: /"
    done
    cmp "$scratch/in-use-20" "$scratch/in-use-1000"
}

case $what in
python) in_python ;;
memray) under_memray ;;
c) in_c ;;
both) in_c; in_python ;;
*) echo "leaks.sh: usage: leaks.sh [python|memray|c]" >&2; exit 2 ;;
esac
