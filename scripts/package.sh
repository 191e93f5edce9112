#!/usr/bin/env bash
# Whether every crate that is published can be: packages them all, unpacks the packages into a workspace, and checks it, so that each
# package is compiled against the packages of the others.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
unpacked=$target/packages
rm -rf "$unpacked" "$target/package"
mkdir -p "$unpacked"
trap 'rm -rf "$unpacked"' EXIT

"$cargo" package --workspace --exclude needs --exclude extant-testing --exclude extant-bench --exclude extant-demo --no-verify --quiet "$@"
# Files in packages all have the same time of change, so that cargo would take an earlier build of another content for this one.
for package in "$target"/package/*.crate; do
    tar -xzmf "$package" -C "$unpacked"
done
{
    printf '[workspace]\nmembers = ["*"]\nresolver = "3"\n\n[patch.crates-io]\n'
    for dir in "$unpacked"/*/; do
        name=$(sed -n 's/^name = "\(.*\)"/\1/p' "$dir/Cargo.toml" | head -n 1)
        printf '%s = { path = "%s" }\n' "$name" "$(basename "$dir")"
    done
    # With the profile of the tests, what clippy has compiled of other crates serves.
    sed -n '/^\[profile\.test-fast/,/^$/p; /^\[profile\.release\]/,/^$/p' Cargo.toml
} >"$unpacked/Cargo.toml"
cp Cargo.lock "$unpacked"
"$cargo" check --quiet --workspace --profile test-fast --manifest-path "$unpacked/Cargo.toml" --target-dir "$target"
