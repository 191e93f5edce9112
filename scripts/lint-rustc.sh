#!/bin/sh
# A wrapper of rustc (RUSTC_WORKSPACE_WRAPPER) that compiles with the lints of clippy, and fails on a warning.
exec clippy-driver "$@" -D warnings
