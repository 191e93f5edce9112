#!/usr/bin/env bash
# Builds the Python package in a virtual environment below the target directory, and runs its tests.
set -euo pipefail
cd "$(dirname "$0")/../bindings/python"
target=$(realpath -m "${CARGO_TARGET_DIR:-../../target}")
# A directory of its own: features and profile differ from those of the workspace.
export CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=$target/python VIRTUAL_ENV=$target/python/venv
mkdir -p "$target/python"
if [ ! -x "$VIRTUAL_ENV/bin/maturin" ]; then
    "${PYTHON:-python3}" -m venv "$VIRTUAL_ENV"
    "$VIRTUAL_ENV/bin/pip" install --quiet maturin mypy pytest hypothesis fsspec pyarrow pandas
fi
"${CARGO:-cargo}" fmt --check
"${CARGO:-cargo}" clippy --quiet --all-targets -- -D warnings
"$VIRTUAL_ENV/bin/maturin" develop --quiet
"$VIRTUAL_ENV/bin/mypy" --strict --ignore-missing-imports --allow-subclassing-any python/extant
"$VIRTUAL_ENV/bin/python" -m pytest -q "$@"
