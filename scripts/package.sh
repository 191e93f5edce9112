#!/usr/bin/env bash
# Whether every crate that is published can be: packages them all and builds what was packaged, each against the packages of
# the others.
set -euo pipefail
cd "$(dirname "$0")/.."
# Whether they build is asked, not how fast they are.
export CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=0

# Cargo knows the packages of the others by name and version: it takes what an earlier run unpacked below its home, in the
# directory of a registry without a host, and what was built of it, and would build a crate against those of another day.
forget() {
    local manifest name
    for manifest in crates/*/*/Cargo.toml; do
        name=$(sed -n 's/^name = "\(.*\)"/\1/p' "$manifest" | head -n 1)
        rm -rf "${CARGO_HOME:-$HOME/.cargo}"/registry/{src,cache}/-*/"$name"-[0-9]* \
            "${CARGO_TARGET_DIR:-target}/debug/.fingerprint/$name"-*
    done
}
trap forget EXIT
forget
"${CARGO:-cargo}" package --workspace --exclude needs --exclude extant-testing --exclude extant-bench --exclude extant-demo --quiet \
    --config 'profile.dev.package."*".opt-level=0' "$@"
