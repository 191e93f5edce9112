//! `extant mount -o remount`: makes a mount read-only, or writable again.
//!
//! The kernel refuses or allows changes; the server brings the image to the state of a closed one, or makes it
//! writable again. While the mount is read-only, the image can be copied, or read by others.

use anyhow::{Context, Result, bail};
use extant_cli_core::mounts::mounted::Mounted;
use extant_fuse::MountOptions;
use extant_fuse::control::Command;
use rustix::mount::MountFlags;
use std::path::Path;

/// Fails if the options differ from options of the mount that a remount does not change, as the kernel lists them.
fn unchanged(options: &MountOptions, listed: &str) -> Result<()> {
    let has = |word: &str| listed.split(',').any(|option| option == word);
    let now = match () {
        () if has("noatime") => extant::AccessTimes::None,
        () if has("relatime") => extant::AccessTimes::Relative,
        () => extant::AccessTimes::Strict,
    };
    if options.access_times_asked && options.settings.access_times != now {
        bail!("remount does not change how access times are kept: unmount it first");
    }
    Ok(())
}

pub fn run(dir: &Path, options: &MountOptions) -> Result<()> {
    let mounted = Mounted::at(dir)?;
    let on = || mounted.name();
    unchanged(options, mounted.mount_options()).with_context(on)?;
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOEXEC, !options.exec);
    for (word, flag) in [
        ("noatime", MountFlags::NOATIME),
        ("relatime", MountFlags::RELATIME),
    ] {
        let listed = mounted.mount_options().split(',').any(|o| o == word);
        flags.set(flag, listed);
    }
    let mut client = mounted.client()?;
    if !options.read_only {
        client
            .ask(Command::ReadWrite)
            .with_context(|| format!("{}: it was mounted read-only; unmount it first", on()))?;
    }
    // The kernel writes back its dirty pages before it refuses changes.
    let done = rustix::mount::mount_remount(mounted.dir(), flags, "");
    if options.read_only && done.is_ok() {
        client.ask(Command::ReadOnly).with_context(on)?;
    }
    done.with_context(on)
}
