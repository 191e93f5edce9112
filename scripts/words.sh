#!/usr/bin/env bash
# Fails, with file and line, at sentences that have to be read twice, and at types whose names need their module to make sense. The
# patterns cover comments and documents. The terms of ext4, jbd2 and POSIX are free to use; the glossary in ARCHITECTURE.md has those
# of this project. Called by `make lint`.
set -euo pipefail
cd "$(dirname "$0")/.."
bad=0

# Comments and documents, each line as FILE:LINE:TEXT. The first line of a comment, paragraph or item begins with ">", the others with a
# blank. Code blocks, tables and headings are left out.
texts() {
    git ls-files --cached --others --exclude-standard -- '*.rs' '*.md' ':!docs/bench' ':!lab/*/results' |
        while read -r file; do [ ! -f "$file" ] || echo "$file"; done | xargs awk '
        FNR == 1 { open = 0; code = 0; md = FILENAME ~ /\.md$/ }
        {
            text = $0
            if (!md) {
                if (!match(text, /^ *\/\/[\/!]? /)) { open = 0; next }
                kind = substr(text, RSTART, RLENGTH)
                text = substr(text, RLENGTH + 1)
                if (kind != last) open = 0
                last = kind
            }
            if (text ~ /^ *```/) { code = !code; open = 0; next }
            if (code) next
            if (text ~ /^ *(\||#|$)/) { open = 0; next }
            if (sub(/^ *([-*]|[0-9]+\.) /, "", text)) open = 0
            print FILENAME ":" FNR ":" (open ? " " : ">") text
            open = 1
        }'
}

# Parts of sentences that are right although a pattern matches.
allowed=(
    'What it does not do'           # a title
    'hat is promised'               # a title
    'by whom to mount'              # people
    'to whom no permission'         # people
    'What it should look like'      # a form that people fill in
)

all=$(mktemp)
trap 'rm -f "$all"' EXIT
texts | grep -vF "$(printf '%s\n' "${allowed[@]}")" >"$all"

# Prints the lines that a pattern matches, and the advice.
check() {
    if grep -P -- "^[^:]+:\d+:$2" "$all"; then
        echo "words.sh: $1" >&2
        bad=1
    fi
}
check 'open a comment with a verb or a noun, not with a pronoun' \
    '>(Those|These are|Whoever|Whatever|What|Which|The same|The ones?|One that|None|So) (?!.*\?)'
check 'a sentence without a subject: name it' '>(Is|Are|Was|Were|Has|Have|Had|Must|May|Could|Will|Would) '
check 'code has no "who": name the caller, the thread or the reader' \
    '.*(?<!`)\b[Ww]ho(ever|m)?\b(?! (calls?|reads?|writes?|uses?|knows?|wants?|adds?|changes?|maintains?|builds?|runs?|types?|can|may|has)\b)'
check 'reports, notifies, passes, states' '.*\b(is|are|was|were|be|been) told\b|.*\btells? (it|them)\b|.*\bsays? so\b'
check 'repeat the noun or the verb' '.*\b(is|are|was|were|has|have|had) none\b|.*\b([Ss]o|[Nn]or|(?<!If )neither) (is|are|does|do|has|have|was|were)\b(?! not)'
check 'separate, again, of it' '.*\bof (its|their) own(?=[.,;:)]|$| (and|in|which|because|such|as)\b)|.*\banew\b|.*\b(there|where)(of|in|by)\b'
check 'use the noun instead of a clause with "what"' \
    '.*\b[Ww]hat (was|were) \w|.*\b[Ww]hat (is|are) \w+ed\b|.*\b[Ww]hat (it|they) (is|are|has|have|was|were)\b|.*\bthat which\b'

name='\b(struct|enum|trait|type|union) (Asked|Done|Early|Given|How|Kept|Kind|Known|Made|Near|New|Other|Place|Same|Share|State|Taken|Told|Wanted)\b'
if git grep --untracked -nIP -- "$name" -- '*.rs'; then
    echo "words.sh: choose a name that stands alone" >&2
    bad=1
fi
exit $bad
