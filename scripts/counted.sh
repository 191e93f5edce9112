# Sourced by the scripts that count, with the name of an example of the engine: builds it, and sets `program`, a directory
# in memory for it, `dir`, which goes with the script, and a CPU to run it on, `cpu`. If `test_build` is set, the program is
# the one that was built with the tests.

# The profile is fixed, so that variables of the caller's environment do not count.
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS
if [ -n "${test_build:-}" ]; then
    ${CARGO:-cargo} test --workspace --profile test-fast --quiet --no-run
    program=${CARGO_TARGET_DIR:-target}/test-fast/examples/$1
else
    ${CARGO:-cargo} build --release --quiet -p extant --example "$1"
    program=${CARGO_TARGET_DIR:-target}/release/examples/$1
fi
shm=/dev/shm
[ -w $shm ] || shm=${TMPDIR:-/tmp}
dir=$(mktemp -d "$shm/extant-$1.XXXXXX")
trap 'rm -rf "$dir"' EXIT
# One CPU, since the numbers of threads and slots follow from the number of CPUs.
cpu=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
