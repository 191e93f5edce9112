# Sourced by scripts whose steps are timed: `step NAME COMMAND...` runs the command, prints the seconds it took, and adds a
# line to the table that the outermost script prints when it ends.

if [ -z "${EXTANT_STEPS:-}" ]; then
    EXTANT_STEPS=$(mktemp)
    export EXTANT_STEPS
    steps_began=$SECONDS
    steps_table() {
        printf '\n%8s  step\n' seconds
        cat "$EXTANT_STEPS"
        printf '%8d  all\n' $((SECONDS - steps_began))
        rm -f "$EXTANT_STEPS"
    }
    trap steps_table EXIT
fi

step() {
    local name=$1 began=$SECONDS status=0
    shift
    printf '==== %s\n' "$name"
    "$@" || status=$?
    local note=
    [ $status = 0 ] || note=" (failed)"
    printf '%8d  %s%s\n' $((SECONDS - began)) "$name" "$note" | tee -a "$EXTANT_STEPS"
    return $status
}
