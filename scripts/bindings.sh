#!/usr/bin/env bash
# Builds the bindings for Python, C and Go with one build of the engine, and runs their tests.
#
#   scripts/bindings.sh                 runs everything, and notes in .ci/bindings-checked what was checked
#   scripts/bindings.sh --if-changed    does nothing if that is what was checked last
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/steps.sh
record=.ci/bindings-checked

# What decides: the bindings, their scripts and pages, and the interfaces that they call.
inputs() {
    git ls-files -z bindings docs/api docs/how-to/{python,c,go,libext2fs}.md \
        scripts/{bindings,bindings-build,lint-rustc,python,c,c-install,go,leaks}.sh | xargs -0 sha256sum
}
now=$(inputs | sha256sum | cut -d' ' -f1)
if [ "${1:-}" = --if-changed ] && [ "$now" = "$(cat $record 2>/dev/null)" ]; then
    echo "bindings.sh: unchanged since they were checked"
    exit
fi
(cd bindings && "${CARGO:-cargo}" fmt --all --check)
step "libextant: build" scripts/c.sh build
step "Python: build" scripts/python.sh build
step "libextant: tests" scripts/c.sh
step "Python: tests" scripts/python.sh
step "Go" scripts/go.sh
echo "$now" >$record
