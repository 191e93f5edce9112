#!/usr/bin/env bash
# Builds libextant, and runs its tests: in C under the sanitizers and valgrind, and in C++17.
set -euo pipefail
cd "$(dirname "$0")/../bindings/c"
target=$(realpath -m "${CARGO_TARGET_DIR:-../../target}")
export CARGO_TARGET_DIR=$target/c
"${CARGO:-cargo}" fmt --check
"${CARGO:-cargo}" clippy --quiet --all-targets -- -D warnings
"${CARGO:-cargo}" build --quiet
lib=$CARGO_TARGET_DIR/debug
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
strict=(-Wall -Wextra -Wpedantic -Werror -Iinclude)
run() {
    rm -rf "$scratch/images"
    mkdir "$scratch/images"
    LD_LIBRARY_PATH=$lib "$@" "$scratch/images"
}
for compiler in gcc clang; do
    command -v "$compiler" >/dev/null || continue
    "$compiler" -std=c11 "${strict[@]}" -g -fsanitize=address,undefined -o "$scratch/sanitized" tests/test.c -L"$lib" -lextant -lpthread
    # The library's memory is not the sanitizer's to count.
    ASAN_OPTIONS=detect_leaks=0 run "$scratch/sanitized"
done
gcc -std=c11 "${strict[@]}" -o "$scratch/static" tests/test.c "$lib/libextant.a" -lpthread -ldl -lm
run "$scratch/static"
g++ -std=c++17 "${strict[@]}" -o "$scratch/cpp" tests/test.cpp -L"$lib" -lextant
run "$scratch/cpp"
if command -v valgrind >/dev/null; then
    gcc -std=c11 "${strict[@]}" -g -o "$scratch/plain" tests/test.c -L"$lib" -lextant -lpthread
    run valgrind --quiet --suppressions=tests/valgrind.supp --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite "$scratch/plain"
fi
