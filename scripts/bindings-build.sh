# Sourced by the scripts of the bindings, from the root of the repository: they share one build of the engine, in a directory of its own
# because features and profile differ from those of the main workspace. Sets `target`.
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=$target/bindings
# The bindings are linted as they are compiled. `cargo clippy` would read the whole engine a second time.
export RUSTC_WORKSPACE_WRAPPER=$PWD/scripts/lint-rustc.sh
