//! Mount options, as `-o` and /etc/fstab spell them. docs/mount.md has a table of all of them.

mod words;

use extant::{AccessTimes, BlockScan, ErrorPolicy, Settings, VolumeOptions};
use std::time::Duration;

/// Options of a mount.
///
/// ```
/// let mut options = extant_fuse::MountOptions::default();
/// options.parse("rw,noatime,allow_other,cache=512M,nofail,x-systemd.automount")?;
/// assert!(options.allow_other && !options.read_only);
/// assert_eq!(options.cache_bytes, Some(512 << 20));
/// # Ok::<(), extant_fuse::OptionError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Whether the image must not be changed.
    pub read_only: bool,
    /// Whether writing was requested: an image that cannot be changed is refused.
    pub read_write: bool,
    /// Whether to change an existing mount between read-only and read-write.
    pub remount: bool,
    /// Whether users other than the mounting one may use the mount.
    pub allow_other: bool,
    /// Whether set-user-id bits are honoured; only root may set this.
    pub suid: bool,
    /// Whether device nodes can be opened; only root may set this.
    pub dev: bool,
    /// Whether programs can be executed.
    pub exec: bool,
    /// Whether every write waits until it is durable.
    pub sync: bool,
    /// Whether every change of a name waits until it is durable.
    pub sync_names: bool,
    /// Settings of the volume.
    pub settings: Settings,
    /// Whether a rule for access times was given.
    pub access_times_asked: bool,
    /// Whether data are sent to the server at once, without the kernel's write-back: a full volume then fails the
    /// write instead of the close.
    pub write_through: bool,
    /// Whether to ignore the journal, with a read-only mount.
    pub noload: bool,
    /// Bytes of memory for data in the server.
    pub cache_bytes: Option<u64>,
    /// Name of the source in /proc/mounts, if not the image's path.
    pub source: Option<String>,
    /// Owner shown for all files.
    pub shown_uid: Option<u32>,
    /// Group shown for all files.
    pub shown_gid: Option<u32>,
}

impl Default for MountOptions {
    fn default() -> Self {
        let mut settings = Settings::default();
        settings.access_times = AccessTimes::Relative;
        Self {
            read_only: false,
            read_write: false,
            remount: false,
            noload: false,
            allow_other: false,
            suid: true,
            dev: true,
            exec: true,
            sync: false,
            sync_names: false,
            settings,
            access_times_asked: false,
            write_through: false,
            cache_bytes: None,
            source: None,
            shown_uid: None,
            shown_gid: None,
        }
    }
}

/// An invalid option.
///
/// ```
/// let error = extant_fuse::MountOptions::default().parse("rw,quux").unwrap_err();
/// assert_eq!(error.to_string(), "mount option \"quux\": not known");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("mount option {option:?}: {why}")]
pub struct OptionError {
    option: String,
    why: &'static str,
}

impl MountOptions {
    /// Returns the options to open the image for a mount with these options.
    pub fn open_options(&self) -> VolumeOptions {
        let options = VolumeOptions::new()
            .read_only(self.read_only)
            .noload(self.noload)
            .settings(self.settings);
        match self.cache_bytes {
            Some(bytes) => options.cache_bytes(bytes),
            None => options,
        }
    }

    /// Returns the options for the kernel's mount.
    pub fn for_kernel(&self, image: &str) -> fuse_server::MountOptions {
        fuse_server::MountOptions {
            source: self.source.as_deref().unwrap_or(image).into(),
            subtype: Some("extant".into()),
            read_only: self.read_only,
            allow_other: self.allow_other,
            // The engine relies on the kernel for permissions.
            default_permissions: true,
            nosuid: !self.suid,
            nodev: !self.dev,
            noexec: !self.exec,
            noatime: self.settings.access_times == AccessTimes::None,
            strictatime: self.settings.access_times == AccessTimes::Strict,
            lazytime: self.settings.lazy_times,
            nodiratime: !self.settings.directory_times,
            sync: self.sync,
            dirsync: self.sync_names,
            ..fuse_server::MountOptions::default()
        }
    }

    /// Parses a list of options separated by commas; later options override earlier ones.
    ///
    /// # Errors
    /// An unknown option, a refused option, with the reason, or an invalid value. Words that tell `mount`, systemd and
    /// their tools when and by whom to mount are ignored, and so are options of ext4 and FUSE that select the default,
    /// or features that do not exist here.
    pub fn parse(&mut self, list: &str) -> Result<(), OptionError> {
        for option in list.split(',').filter(|o| !o.is_empty()) {
            self.take(option).map_err(|why| OptionError {
                option: option.into(),
                why,
            })?;
        }
        Ok(())
    }

    fn take(&mut self, option: &str) -> Result<(), &'static str> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let wanted = || value.ok_or("needs a value");
        match name {
            "cache" => self.cache_bytes = Some(bytes(wanted()?)?),
            "commit" => {
                let seconds: u64 = wanted()?.parse().map_err(|_| "not a number of seconds")?;
                // 0 means the default, as in ext4.
                self.settings.commit_interval = match seconds {
                    0 => Settings::default().commit_interval,
                    _ => Duration::from_secs(seconds),
                };
            }
            "errors" => {
                self.settings.errors = match wanted()? {
                    "continue" => ErrorPolicy::Continue,
                    // A damaged image must not make a program panic.
                    "remount-ro" | "panic" => ErrorPolicy::ReadOnly,
                    "shutdown" => ErrorPolicy::Shutdown,
                    _ => return Err("remount-ro, shutdown, panic or continue"),
                };
            }
            "mb_optimize_scan" => {
                self.settings.block_scan = BlockScan::of_option(wanted()?).ok_or("0 or 1")?;
            }
            "uid" => {
                self.shown_uid = Some(wanted()?.parse().map_err(|_| "not a number of a user")?)
            }
            "gid" => {
                self.shown_gid = Some(wanted()?.parse().map_err(|_| "not a number of a group")?)
            }
            "fsname" => self.source = Some(wanted()?.into()),
            _ if words::mean_nothing(option) => {}
            _ => match words::refusal(option) {
                Some(why) => return Err(why),
                None if value.is_some() => return Err("not known"),
                None => return self.take_flag(name),
            },
        }
        Ok(())
    }

    fn ask_access_times(&mut self, how: AccessTimes) {
        (self.settings.access_times, self.access_times_asked) = (how, true);
    }

    fn take_flag(&mut self, flag: &str) -> Result<(), &'static str> {
        match flag {
            "ro" => (self.read_only, self.read_write) = (true, false),
            "rw" => (self.read_only, self.read_write) = (false, true),
            "remount" => self.remount = true,
            "auto_da_alloc" => self.settings.auto_da_alloc = true,
            "noauto_da_alloc" => self.settings.auto_da_alloc = false,
            "noload" | "norecovery" => (self.noload, self.read_only) = (true, true),
            "allow_other" => self.allow_other = true,
            "suid" => self.suid = true,
            "nosuid" => self.suid = false,
            "dev" => self.dev = true,
            "nodev" => self.dev = false,
            "exec" => self.exec = true,
            "noexec" => self.exec = false,
            "sync" => self.sync = true,
            "async" => (self.sync, self.sync_names) = (false, false),
            "dirsync" => self.sync_names = true,
            "atime" | "relatime" | "norelatime" => self.ask_access_times(AccessTimes::Relative),
            "noatime" => self.ask_access_times(AccessTimes::None),
            "strictatime" => self.ask_access_times(AccessTimes::Strict),
            "diratime" => self.settings.directory_times = true,
            "nodiratime" => self.settings.directory_times = false,
            "lazytime" => self.settings.lazy_times = true,
            "nolazytime" => self.settings.lazy_times = false,
            "writethrough" => self.write_through = true,
            "user" | "users" => (self.suid, self.dev, self.exec) = (false, false, false),
            "owner" | "group" => (self.suid, self.dev) = (false, false),
            _ => return Err("not known"),
        }
        Ok(())
    }
}

/// Parses a number of bytes, with or without K, M, G or T.
fn bytes(text: &str) -> Result<u64, &'static str> {
    const WHY: &str = "a size like 64M or 2G";
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KIB" => 10,
        "M" | "MIB" => 20,
        "G" | "GIB" => 30,
        "T" | "TIB" => 40,
        _ => return Err(WHY),
    };
    let number: u64 = digits.parse().map_err(|_| WHY)?;
    number.checked_mul(1 << shift).ok_or(WHY)
}

#[cfg(test)]
mod tests;
