#!/usr/bin/env bash
# One word, one thing: fails with file and line where a retired word comes back, in code, comments, documents or messages.
# The glossary in ARCHITECTURE.md has the words that are used. Called by `make lint`.
set -euo pipefail
cd "$(dirname "$0")/.."

# A Perl regular expression; the word to use instead; a regular expression of files in which the word has its own meaning.
retired() {
    cat <<'END'
(?i)checkpoint	"context" of what becomes durable together; a checkpoint is the journal's	^(ARCHITECTURE.md|docs/commit-protocol.md|crates/extant/src/commit/(journal/.*|push.rs)|crates/extant/src/(volume/(ending|freeze)|base/invariants|store/buffers|commit/superblock).rs|crates/extant-fuse/tests/it/programs/sqlite.rs)$
(?i)settl	what is done: make durable, account for, choose, write	^$
(?i)\bcharg(e|es|ed|ing)\b|_charge|charge_	reserve or account for	^(LICENSE-.*|packaging/debian/copyright)$
(?i)\bdispos(e|es|ed)\b	free	^$
(?i)\b(giv(e|es|ing|en)|gave)[ _]([\w`']+ ){0,4}?back\b|give_back|given_back	free (blocks, numbers), return (what was reserved), release (descriptors)	^$
(?i)\brenewed\b	rewritten	^$
\bWindow\b|_window\b|_WINDOW\b|discard_window	preallocation	^crates/extant-mkfs/src/archive/(stream|decoders).rs$
\bSeldom\b	MiscChanges	^crates/percpu/src/biased/mod.rs$
(?i)\bnudge	self_request	^crates/ext4-format/src/xattr/tests.rs$
(?i)\blanes?\b	ring; a task's part	^$
(?i)\bstir\b|\bstirred\b	jitter	^$
begin_giving	begin_freeing	^$
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
