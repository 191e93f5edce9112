#!/usr/bin/env bash
# Functions fit a screen and files are about one idea: fails on a function above 80 lines or a file above 700, tests apart. Called
# by `make lint`.
set -euo pipefail
cd "$(dirname "$0")/.."

find crates lab -name '*.rs' -not -path '*/target/*' -not -path '*/tests/*' -not -name '*tests.rs' -print0 | sort -z |
    xargs -0 awk '
    FNR == 1 {
        if (lines > 700 && file != "") { print file ": " lines " lines"; bad = 1 }
        file = FILENAME; name = ""; test = 0
    }
    { lines = FNR }
    /^#\[cfg\(test\)\]/ { test = 1 }
    test { next }
    name == "" && match($0, /^ *(pub(\([^)]*\))? )?(const )?(async )?(unsafe )?(extern "C" )?fn [A-Za-z0-9_]+/) {
        if ($0 ~ /[;}]$/) next
        indent = $0; sub(/[^ ].*/, "", indent)
        name = $0; sub(/.*fn /, "", name); sub(/[^A-Za-z0-9_].*/, "", name)
        from = FNR
        next
    }
    name != "" && ($0 == indent "}" || $0 == indent ");" || $0 ~ "^" indent "[^ ].*;$") {
        if (FNR - from + 1 > 80) { print file ":" from ": " name " has " FNR - from + 1 " lines"; bad = 1 }
        name = ""
    }
    END { if (lines > 700) { print file ": " lines " lines"; bad = 1 }; exit bad }'
