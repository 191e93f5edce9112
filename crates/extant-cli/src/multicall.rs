//! Under the name `mount.extant` or `mount.fuse.extant`, as mount(8) looks for it, this program is
//! `extant mount`.

use std::ffi::OsString;
use std::path::Path;

/// The command line, as if it were given to `extant`.
pub fn args() -> impl Iterator<Item = OsString> {
    let mut args = std::env::args_os();
    let name = args.next().unwrap_or_else(|| "extant".into());
    let base = Path::new(&name).file_name().unwrap_or_default();
    let all: Vec<OsString> = if ["mount.extant", "mount.fuse.extant", "mount.fuseblk.extant"]
        .contains(&&*base.to_string_lossy())
    {
        crate::commands::mount::from_helper(args)
    } else {
        std::iter::once(name).chain(args).collect()
    };
    all.into_iter()
}
