#!/usr/bin/env bash
# Fails with file and line where a type has a name that needs its module to make sense. The terms of ext4, jbd2 and POSIX are free to
# use; the glossary in ARCHITECTURE.md has those of this project. Called by `make lint`.
set -euo pipefail
cd "$(dirname "$0")/.."

name='\b(struct|enum|trait|type|union) (Share|Place|Kind|State)\b'
if git grep --untracked -nIP -- "$name" -- ':!scripts/words.sh' ':!docs/bench' ':!*.svg'; then
    echo "words.sh: choose a name that stands alone" >&2
    exit 1
fi
