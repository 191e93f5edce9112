#!/usr/bin/env bash
# Checks that every path and identifier in the code spans of ARCHITECTURE.md and of the design documents exists: paths from
# the root, from crates/ or from crates/engine/extant/src; identifiers as words of the Rust sources outside comments. In the walks of
# ARCHITECTURE.md and CONTRIBUTING.md every item must be defined in the file linked before it.
set -euo pipefail
cd "$(dirname "$0")/.."

words=$(mktemp)
trap 'rm -f "$words"' EXIT
find crates lab -name '*.rs' -not -path '*/target/*' -exec sed 's://.*$::' {} + |
    grep -oE '[A-Za-z_][A-Za-z0-9_]*|"[a-z0-9]+(-[a-z0-9]+)+"' | tr -d '"' >"$words"
{ ls crates/* lab; sed -n 's/^name = "\(.*\)"/\1/p' crates/*/*/Cargo.toml lab/*/Cargo.toml; } >>"$words"
# Names of Linux.
printf '%s\n' _raw_spin_lock ext2_get_block lru_list_lock O_TMPFILE >>"$words"
sort -u -o "$words" "$words"

# Every code span of these documents as FILE:LINE:SPAN; code blocks are left out.
spans() {
    awk 'FNR == 1 { code = 0 }
        /^ *```/ { code = !code; next }
        code { next }
        {
            line = $0
            while (match(line, /`[^`]+`/)) {
                print FILENAME ":" FNR ":" substr(line, RSTART + 1, RLENGTH - 2)
                line = substr(line, RSTART + RLENGTH)
            }
        }' "$@"
}

missing=0
say() {
    echo "$1: \`$2\`: there is no such $3"
    missing=1
}

while IFS=: read -r file line span; do
    case $span in
    *' '* | *'['* | *'<'* | *'='* | -* | '#'*) ;;
    */* | *.rs | *.md | *.sh)
        # {a,b} stands for both.
        for path in $(eval "printf '%s\n' $(printf '%s' "$span" | tr -cd 'A-Za-z0-9_./{},-')"); do
            [ -e "$path" ] || [ -e "crates/$path" ] || [ -e "crates/engine/extant/src/$path" ] ||
                [ -n "$(find crates lab -path "*/${path%/}" -print -quit)" ] || case $path in
            /*) ;;
            *) say "$file:$line" "$path" path ;;
            esac
        done
        ;;
    *)
        for word in $(printf '%s' "$span" | sed 's/::/ /g; s/()//; s/[!,;]//g'); do
            case $word in
            before:* | *[!A-Za-z0-9_:.-]* | .* | *.*) ;;
            *) grep -qxF -- "$word" "$words" || say "$file:$line" "$word" identifier ;;
            esac
        done
        ;;
    esac
done < <(spans ARCHITECTURE.md docs/commit-protocol.md docs/scaling.md docs/mechanisms/*.md)

# Checks the walks of a document, which are between two headings: the item in each code span is defined in the file that was
# linked before it. Fails if there are fewer items than given.
walks() {
    local document=$1 file= checked=0 part name
    while read -r part; do
        case $part in
        '**'*) file= ;;
        '](crates/'* | '](bindings/'* | '](lab/'*) file=${part#']('} file=${file%')'} ;;
        '`'*)
            name=${part//\`/}
            checked=$((checked + 1))
            grep -qE "(fn|struct|enum|const|macro_rules!|def) $name\b" "${file:-/dev/null}" ||
                say "$document" "$name" "definition in ${file:-any file before it}"
            ;;
        esac
    done < <(sed -n "/^## $2/,/^## $3/p" "$document" | grep -oE '^\*\*A.*|\]\([^)]*\)|`[A-Za-z_]+`')
    if [ "$checked" -lt "$4" ]; then
        echo "$document: only $checked items found in the walks: is the heading \"$2\" there?"
        missing=1
    fi
}
walks ARCHITECTURE.md 'Four walks' Invariants 20
walks CONTRIBUTING.md 'Two additions' Rules 20
exit $missing
