#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

// The tests of the public interface are part of the unit tests' program, which saves linking another program.
#[cfg(test)]
extern crate self as extant_disk;
#[cfg(test)]
#[path = "../tests/it/main.rs"]
mod it;

mod android;
mod by_imago;
mod cursor;
mod error;
mod formats;
mod gpt_table;
mod kinds;
mod make;
mod mapped;
mod mbr;
mod new_image;
mod new_vhd;
mod new_vmdk;
mod pack;
mod packing;
mod partition;
mod piece_cache;
mod qcow2;
mod scratch;
mod seek_table;
mod seekable;
mod table;
mod unpacked;
mod vhd;
mod vmdk;

pub use blockdev;
pub use by_imago::in_imago;
pub use error::Error;
pub use formats::{Format, decompressed_head, open, open_with, seekable};
pub use make::{NewDisk, NewPartition, Purpose};
pub use new_image::{NewFormat, NewImage, directory};
pub use packing::Packing;
pub use partition::{Part, Partition, Scheme, Table};
pub use table::part;
pub use unpacked::Unpacking;
