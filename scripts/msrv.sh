#!/usr/bin/env bash
# Whether the published crates build with the oldest compiler that Cargo.toml promises, which rustup installs.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
if ! command -v rustup >/dev/null; then
    echo "msrv.sh: NOT CHECKED: there is no rustup to install Rust $version with" >&2
    [ -z "${CI:-}" ]
    exit
fi
rustup toolchain install "$version" --profile minimal --no-self-update >/dev/null 2>&1 || {
    echo "msrv.sh: NOT CHECKED: rustup cannot install Rust $version" >&2
    [ -z "${CI:-}" ]
    exit
}
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")/msrv rustup run "$version" \
    cargo check --quiet --workspace --exclude extant-bench
echo "Rust $version builds the published crates"
