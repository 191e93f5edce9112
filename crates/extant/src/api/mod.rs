//! The public interface: open a volume, work on it by path or handle, close it.

pub mod control;
pub mod dir;
mod dir_contents;
pub mod file;
mod inspect;
pub mod node;
mod node_data;
pub mod open;
pub mod scratch;
mod std_io;
pub mod tree;
pub mod volume;
pub mod watch;
