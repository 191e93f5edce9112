//! Tests of the crate over its public interface, in one program.

#[path = "images/bases.rs"]
mod bases;
mod cli;
#[path = "../../../../engine/extant/tests/it/common/mod.rs"]
mod common;
mod documents;
#[path = "../../../../engine/extant/tests/it/hostile/image.rs"]
mod image;
mod images;
#[path = "../../../../engine/extant/tests/it/hostile/map.rs"]
mod map;
mod mount;
#[path = "../../../../engine/extant/tests/it/hostile/mutate.rs"]
mod mutate;
#[path = "../../../../engine/extant/tests/it/hostile/operations.rs"]
mod operations;
#[path = "terminal/tmux.rs"]
mod tmux;
#[path = "../../../../format/ext4-format/tests/it/walk/mod.rs"]
mod walk;
