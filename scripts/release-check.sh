#!/usr/bin/env bash
# Checks what a release promises: licences and origins of the crates it builds on, that every package builds from what would
# be published, and that the public interfaces are as docs/api says.
#
#   scripts/release-check.sh                 checks, and notes in .ci/release-checked what was checked
#   scripts/release-check.sh --if-changed    does nothing if that is what was checked last
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/steps.sh
record=.ci/release-checked

# The files that decide: manifests, the lock file, interfaces, and each line that makes something public.
inputs() {
    git ls-files -z Cargo.toml Cargo.lock 'crates/*/*/Cargo.toml' deny.toml docs/api scripts/deny.sh scripts/package.sh \
        scripts/public-api.sh | xargs -0 sha256sum
    git ls-files -z 'crates/*/*/src/*.rs' | xargs -0 grep -hE '^ *pub (use |mod |fn |const |unsafe |async |struct |enum |trait |type |static |union |[a-z_]+:)'
}
now=$(inputs | sha256sum | cut -d' ' -f1)
if [ "${1:-}" = --if-changed ] && [ "$now" = "$(cat $record 2>/dev/null)" ]; then
    echo "release-check.sh: unchanged since it was checked"
    exit
fi
step "licences and origins" scripts/deny.sh
step "without archives" env RUSTFLAGS="-D warnings" cargo check -q -p extant --no-default-features
step "packages" scripts/package.sh
step "public interfaces" scripts/public-api.sh
echo "$now" >$record
