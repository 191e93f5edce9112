//! The command line: one definition for parsing, help, man pages and completions.

use crate::commands::Command;
use clap::Parser;
use std::path::PathBuf;

/// Make, fill, read and change ext4 images: without root, without mounting, on all cores
///
/// IMAGE:/path names a file inside an image. IMAGE: is the root of the image, and IMAGE:<12> the inode of that number,
/// for commands that need no name. The patterns *, ? and [...] in the path are matched in the image; quote them, so that
/// the shell does not expand them. A file whose name is the pattern itself has precedence. - is standard input or
/// output, where a file is accepted. If the name of a file of the host looks like an address, write it with a leading
/// ./. Times are shown and read in the zone of TZ or of the system, and in UTC in JSON. Owners are shown as numbers. On a
/// terminal, help has colours unless NO_COLOR is set, and work of more than a second (or EXTANT_PROGRESS=SECONDS) shows
/// its progress.
#[derive(Parser, Debug)]
#[command(name = "extant", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// Read images as they are on the device, without replaying their journals, as ext4's noload
    #[arg(long, global = true)]
    pub noload: bool,
    /// Leave the image unchanged: changes go to this file, which is made if it does not exist, and its blocks are read
    /// instead of those of the image. See `extant apply`
    // `extant apply` has an argument of the name `overlay`.
    #[arg(long = "overlay", global = true, value_name = "FILE")]
    pub overlay_file: Option<PathBuf>,
    /// Time after which a request to a server fails if the server is silent or gone, or never; a command or mount that
    /// finds no server at its start waits for the server during this time. Default: 30 seconds for a silent NBD server, 8
    /// for a lost connection, none for an absent server, 60 for a store (variable: EXTANT_IO_TIMEOUT)
    #[arg(long, global = true, value_name = "SECONDS|never")]
    pub io_timeout: Option<String>,
    /// Number of slots over which threads spread shared data, rounded up to a power of two. Default: the number of
    /// CPUs, at least 4; 1 on a single CPU
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096), help_heading = "Measuring")]
    pub slots: Option<u16>,
    /// Print to standard error at the end which locks threads waited for and how long the locks were held
    #[arg(long, global = true, help_heading = "Measuring")]
    pub lockmeter: bool,
    /// Print to standard error at the end the time spent in the engine's operations
    #[arg(long, global = true, help_heading = "Measuring")]
    pub profile: bool,
}
