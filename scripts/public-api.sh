#!/usr/bin/env bash
# The public interface of the published libraries, as docs/api/CRATE.txt has it.
#
#   scripts/public-api.sh            fails if an interface is not as it is written there, and shows how it differs
#   scripts/public-api.sh --write    writes it
#
# cargo-public-api reads rustdoc's JSON, whose form changes with the compiler: both are of one time here, and change together.
set -euo pipefail
cd "$(dirname "$0")/.."
compiler=1.95.0
version=0.51.0
crates="extant-checksum ext4-format ext4-image extant-blockdev extant-sources extant-mkfs lockmeter extant-percpu extant-formatter extant-check extant-repair extant-rescue extant-tune extant-resize extant-disk extant-nbd extant-mmp extant-verity extant-transfer extant fuse-server extant-fuse"

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
tool=$target/public-api/bin/cargo-public-api
rustup run "$compiler" rustc --version >/dev/null 2>&1 ||
    rustup toolchain install "$compiler" --profile minimal --no-self-update >/dev/null || {
    echo "public-api.sh: NOT CHECKED: rustup cannot install Rust $compiler" >&2
    [ -z "${CI:-}" ]
    exit
}
if [ "$("$tool" --version 2>/dev/null)" != "cargo-public-api $version" ]; then
    cargo install --quiet --locked --root "$target/public-api" --version "$version" cargo-public-api
fi

changed=
for crate in $crates; do
    RUSTC_BOOTSTRAP=1 RUSTDOCFLAGS="${RUSTDOCFLAGS:-} --cap-lints allow" rustup run "$compiler" \
        cargo rustdoc --quiet --profile test-fast -p "$crate" --lib -- -Z unstable-options --output-format json
    now=$("$tool" --rustdoc-json "$target/doc/${crate//-/_}.json" --omit blanket-impls,auto-trait-impls,auto-derived-impls)
    if [ "${1:-}" = --write ]; then
        mkdir -p docs/api
        printf '%s\n' "$now" >"docs/api/$crate.txt"
    elif ! diff -u --label "docs/api/$crate.txt" --label "$crate now" "docs/api/$crate.txt" <(printf '%s\n' "$now"); then
        changed=1
    fi
done
if [ -n "$changed" ]; then
    echo "public-api.sh: the interface changed: scripts/public-api.sh --write notes that it is meant to" >&2
    exit 1
fi
