#!/usr/bin/env bash
# Builds libextant, and runs the tests of the Go module against it. Go is installed from packages if it is absent.
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=$(scripts/c.sh build | tail -n 1)
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig LD_LIBRARY_PATH=$prefix/lib CGO_ENABLED=1
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export GOCACHE=$target/go/cache GOFLAGS=-mod=mod
if ! command -v go >/dev/null; then
    sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    $sudo apt-get update -q >/dev/null
    $sudo apt-get install -y -q --no-install-recommends golang-go >/dev/null
fi
cd bindings/go
unformatted=$(gofmt -l .)
[ -z "$unformatted" ] || { echo "go.sh: gofmt -w $unformatted" >&2; exit 1; }
go vet ./...
# The pointers that cgo passes are checked, and the race detector watches the tests.
GOEXPERIMENT=cgocheck2 go test -race ./... "$@"

# The example of the page is a program that runs.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
sed -n '/^```go$/,/^```$/{/^```/d; p}' ../../docs/how-to/go.md >"$scratch/main.go"
[ -z "$(gofmt -l "$scratch/main.go")" ] || { echo "go.sh: the example of docs/how-to/go.md is not formatted" >&2; exit 1; }
cat >"$scratch/go.mod" <<EOF
module example
go 1.24
require extant.example/extant/bindings/go v0.0.0
replace extant.example/extant/bindings/go => $PWD
EOF
(cd "$scratch" && go vet . && go run . && test -s disk.img)
