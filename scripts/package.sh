#!/usr/bin/env bash
# Whether every crate that is published can be: packages them all and builds what was packaged, each against the packages of
# the others.
set -euo pipefail
cd "$(dirname "$0")/.."
# Whether they build is asked, not how fast they are.
export CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=0
exec "${CARGO:-cargo}" package --workspace --exclude needs --exclude extant-bench --quiet \
    --config 'profile.dev.package."*".opt-level=0' "$@"
