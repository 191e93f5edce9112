# What the scripts of first use are written in: commands as typed, and what must be seen.

shown() {
    sed 's/^/    /' "$seen" | head -"${LINES_SHOWN:-6}"
}

# right COMMAND [TEXT]: it succeeds, and prints the text.
right() {
    echo "  \$ $1"
    bash -c "$1" </dev/null >"$seen" 2>&1 || { shown; echo "FAILED: exit $?"; exit 1; }
    shown
    [ -z "${2:-}" ] || grep -qe "$2" "$seen" || { echo "NOT SEEN: $2"; exit 1; }
}

# wrong COMMAND TEXT: it fails with one line that has the text.
wrong() {
    echo "  \$ $1"
    if bash -c "$1" </dev/null >"$seen" 2>&1; then shown; echo "SUCCEEDED"; exit 1; fi
    shown
    grep -qe "$2" "$seen" || { echo "NOT SEEN: $2"; exit 1; }
}

# The first thing that somebody came for has worked.
worked() {
    echo "  worked after $SECONDS s: $1"
}

set -eu
seen=$(mktemp)
cd
