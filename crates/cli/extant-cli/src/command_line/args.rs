//! The command line: one definition for parsing, help, man pages and completions.

use crate::commands::Command;
use clap::Parser;
use std::path::PathBuf;

/// ext4 images made, filled, read and changed: without root, without mounting, from all cores
///
/// A path inside an image is written IMAGE:/path; IMAGE: is the image's root, and IMAGE:<12> the inode of that number,
/// where no name is needed. *, ? and [...] in it are matched in the image (quote them, or the shell takes them); a name
/// that exists as it is written wins. - is standard input or output where a file can stand. A file of the host whose
/// own name looks like an address is written with a leading ./ and wins if it exists. Times are
/// shown and read in the zone of TZ or of the system, in JSON in UTC; owners are shown as numbers. On terminals, help
/// has colours unless NO_COLOR is set, and work of more than a second (or EXTANT_PROGRESS=SECONDS) shows its progress.
#[derive(Parser, Debug)]
#[command(name = "extant", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// Read images as they are on the device, without what their journals hold, as ext4's noload
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
