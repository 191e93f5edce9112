//! Parts that the commands of `extant` and the programs named as those of e2fsprogs share.
//!
//! | room | what |
//! |---|---|
//! | [`address`] | addresses of files in images, patterns, advice about paths |
//! | [`mod@format`] | names, modes, sizes, times, flags and values of options, as people read and write them |
//! | [`image`] | locations of images, opening and changing them, new files |
//! | [`messages`] | errors with advice, progress of long work |
//! | [`mounts`] | existing mounts, found by their directories |
#![forbid(unsafe_code)]

pub mod address;
pub mod format;
pub mod image;
pub mod messages;
pub mod mounts;
