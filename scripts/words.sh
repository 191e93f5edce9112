#!/usr/bin/env bash
# Fails with file and line where a type has a name that needs its module to make sense. The terms of ext4, jbd2 and POSIX are free to
# use; the glossary in ARCHITECTURE.md has those of this project. Called by `make lint`.
set -euo pipefail
cd "$(dirname "$0")/.."

# A Perl regular expression; what to use instead; a regular expression of files in which the word has its own meaning.
retired() {
    cat <<'END'
\b(struct|enum|trait|type|union) (Share|Place|Kind|State)\b	a name that says of what	^$
END
}

files=$(mktemp)
trap 'rm -f "$files"' EXIT
find . \( -path ./target -o -path ./fuzz/target -o -path ./crates/extant-peers/target -o -name .git -o -name '*.svg' \
    -o -name Cargo.lock -o -path ./docs/bench -o -path ./scripts/words.sh \) -prune \
    -o -type f -print | sed 's|^\./||' | sort >"$files"

found=0
while IFS=$'\t' read -r word instead elsewhere; do
    hits=$(grep -vE -- "$elsewhere" "$files" | tr '\n' '\0' | xargs -0 grep -nIP -- "$word" /dev/null || true)
    if [ -n "$hits" ]; then
        printf '%s\n' "$hits" | sed "s|\$|  <- say: $instead|"
        found=1
    fi
done < <(retired)
exit $found
