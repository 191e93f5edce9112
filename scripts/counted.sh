# Sourced by the scripts that count, with the name of an example of the engine: builds it, and sets `program`, a directory
# in memory for it, `dir`, which goes with the script, and a CPU to run it on, `cpu`.

# The profile is fixed, so that variables of the caller's environment do not count.
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS
${CARGO:-cargo} build --release --quiet -p extant --example "$1"
program=${CARGO_TARGET_DIR:-target}/release/examples/$1
shm=/dev/shm
[ -w $shm ] || shm=${TMPDIR:-/tmp}
dir=$(mktemp -d "$shm/extant-$1.XXXXXX")
trap 'rm -rf "$dir"' EXIT
# One CPU, since the numbers of threads and slots follow from the number of CPUs.
cpu=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
