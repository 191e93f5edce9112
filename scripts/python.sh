#!/usr/bin/env bash
# Builds the Python package in a virtual environment below the target directory, and runs its tests. `scripts/python.sh build` only
# builds; other arguments are those of pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/bindings-build.sh
cd bindings/python
export VIRTUAL_ENV=$target/python/venv
mkdir -p "$target/python"
if [ ! -x "$VIRTUAL_ENV/bin/maturin" ]; then
    "${PYTHON:-python3}" -m venv "$VIRTUAL_ENV"
    "$VIRTUAL_ENV/bin/pip" install --quiet maturin mypy pytest hypothesis fsspec pyarrow pandas
fi
"${CARGO:-cargo}" fmt --check
"$VIRTUAL_ENV/bin/maturin" develop --quiet
[ "${1:-}" != build ] || exit 0
"$VIRTUAL_ENV/bin/mypy" --strict --ignore-missing-imports --allow-subclassing-any python/extant
"$VIRTUAL_ENV/bin/python" -m pytest -q "$@"
