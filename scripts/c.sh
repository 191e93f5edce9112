#!/usr/bin/env bash
# Builds libextant, installs it below the target directory, and runs its tests there: in C with gcc and clang under the sanitizers and
# valgrind, and in C++17. `scripts/c.sh build` only builds and installs; the last line of its output is the prefix. COMPILERS ("gcc clang") are
# the compilers for C.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/bindings-build.sh
cd bindings/c
prefix=$target/c/prefix
compilers=${COMPILERS:-gcc clang}

# need TOOL PACKAGE...
need() {
    local tool=$1
    shift
    command -v "$tool" >/dev/null && return
    local sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    $sudo apt-get update -q >/dev/null
    $sudo apt-get install -y -q --no-install-recommends "$@" >/dev/null
}

need pkg-config pkg-config
"${CARGO:-cargo}" build --quiet
PREFIX=$prefix ../../scripts/c-install.sh "$CARGO_TARGET_DIR/debug/libextant.a"
if [ "${1:-}" = build ]; then
    echo "$prefix"
    exit
fi

[[ $compilers != *clang* ]] || need clang clang libclang-rt-14-dev
need valgrind valgrind
need man man-db
[ -e /usr/include/ext2fs/ext2fs.h ] || need '' libext2fs-dev
"${CARGO:-cargo}" fmt --check
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig LD_LIBRARY_PATH=$prefix/lib
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
strict=(-Wall -Wextra -Wpedantic -Werror)
read -ra cflags < <(pkg-config --cflags extant)
read -ra libs < <(pkg-config --libs extant)
run() {
    rm -rf "$scratch/images"
    mkdir "$scratch/images"
    "$@" "$scratch/images" >"$scratch/said" || { cat "$scratch/said"; exit 1; }
}

# The shared library exports the functions of the header, with versions, and nothing else.
header() { sed 's|/\*.*\*/||; /^ \*/d; /^\/\*/d' include/extant.h | grep -oE '\bextant_[a-z_]+\(' | tr -d '(' | sort -u; }
exported() { nm -D --defined-only "$prefix/lib/libextant.so" | sed -n 's/.* T //p' | sort; }
diff <(header | sed 's/$/@@EXTANT_1.0/') <(exported)
readelf -d "$prefix/lib/libextant.so" | grep -q 'SONAME.*\[libextant.so.1\]'
MANWIDTH=150 man --warnings -l extant.3 2>"$scratch/warnings" >/dev/null
[ ! -s "$scratch/warnings" ] || { cat "$scratch/warnings"; exit 1; }
sed -n '/^\.EX/,/^\.EE/{/^\./d; s/\\e/\\/g; p}' extant.3 >"$scratch/page.c"
sed -n '/^```c$/,/^```$/{/^```/d; p}' ../../docs/how-to/c.md >"$scratch/example.c"

for compiler in $compilers; do
    "$compiler" -std=c11 "${strict[@]}" "${cflags[@]}" -g -fsanitize=address,undefined -fno-sanitize-recover -o "$scratch/sanitized" \
        tests/test.c "${libs[@]}" -lpthread
    # The library's memory is not the sanitizer's to count.
    ASAN_OPTIONS=detect_leaks=0 run "$scratch/sanitized"
    for example in page example; do
        "$compiler" -std=c11 "${strict[@]}" "${cflags[@]}" -o "$scratch/$example" "$scratch/$example.c" "${libs[@]}"
        (cd "$scratch" && rm -f disk.img && "./$example" && test -s disk.img)
    done
done

# The two programs of the page for those who know libext2fs do the same, and e2fsck agrees.
page=../../docs/how-to/libext2fs.md
for library in libext2fs libextant; do
    sed -n "/^\`\`\`c $library\$/,/^\`\`\`\$/{/^\`\`\`/d; p}" $page >"$scratch/$library.c"
    read -ra others < <(pkg-config --libs ext2fs)
    gcc -std=gnu11 -Wall -Wextra -Werror "${cflags[@]}" -o "$scratch/$library" "$scratch/$library.c" "${libs[@]}" "${others[@]}"
    mke2fs -q -t ext4 "$scratch/$library.img" 16M
    "$scratch/$library" "$scratch/$library.img" | sort >"$scratch/$library.said"
    e2fsck -fn "$scratch/$library.img" >"$scratch/said" 2>&1 || { cat "$scratch/said"; exit 1; }
    [ "$(debugfs -R 'cat /conf/name' "$scratch/$library.img" 2>/dev/null)" = box ]
done
diff "$scratch/libext2fs.said" "$scratch/libextant.said"
[ "$(wc -l <"$scratch/libextant.said")" = 2 ]

read -ra static < <(pkg-config --static --libs-only-l extant)
gcc -std=c11 "${strict[@]}" "${cflags[@]}" -o "$scratch/static" tests/test.c "$prefix/lib/libextant.a" "${static[@]:1}"
LD_LIBRARY_PATH='' run "$scratch/static"
for compiler in g++ $([[ $compilers != *clang* ]] || echo clang++); do
    "$compiler" -std=c++17 "${strict[@]}" "${cflags[@]}" -o "$scratch/cpp" tests/test.cpp "${libs[@]}"
    run "$scratch/cpp"
done
gcc -std=c11 "${strict[@]}" "${cflags[@]}" -g -o "$scratch/plain" tests/test.c "${libs[@]}" -lpthread
run valgrind --quiet --suppressions=tests/valgrind.supp --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite "$scratch/plain"
echo "libextant: all tests passed"
