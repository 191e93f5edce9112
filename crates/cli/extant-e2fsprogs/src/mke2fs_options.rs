//! Options of mke2fs that need more than an option of `extant mkfs`.

use crate::changes;
use crate::getopt::Options;
use blockdev::{Access, BlockDevice};
use extant::SetXattr;
use extant_cli_core::image::{images, store};
use extant_terminal::output::one_line;
use extant_tune::TuneOptions;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The parsed options.
#[derive(Default)]
pub(super) struct Call {
    /// The type, if given.
    pub fs_type: Option<String>,
    pub usage: Option<String>,
    pub words: Vec<OsString>,
    /// The block size in bytes, if given, and its minimum.
    pub block_size: Option<u64>,
    pub least_block_size: Option<u64>,
    /// Bytes in front of the volume.
    pub offset: Option<u64>,
    /// The format of the first ext2.
    pub old_revision: bool,
    /// The operating system that the volume is made for.
    pub for_hurd: bool,
    /// Whether to read all blocks first.
    pub reads_all: bool,
    /// Changes to apply after the volume is made.
    pub later: Later,
    /// Letters that were given and therefore override the configuration.
    pub given: String,
    pub extended: Vec<String>,
    pub features: Vec<String>,
    pub quiet: bool,
    pub force: bool,
    pub only_shown: bool,
    pub has_source: bool,
    /// The undo file of the new file system.
    pub undo: Option<OsString>,
}

pub(super) const OPTIONS: Options = Options {
    without: &[
        (
            'S',
            "superblocks alone are not written; extant repair mends them",
        ),
        ('C', "clusters (bigalloc) are not made"),
    ],
    // The journal is always initialized, and nothing is discarded.
    ignored: &[
        "",
        "discard",
        "nodiscard",
        "lazy_journal_init",
        "assume_storage_prezeroed",
    ],
    words_without: &[
        "packed_meta_blocks",
        "desc_size",
        "desc-size",
        "android_sparse",
    ],
    ..Options::of("cjnqvDFKSVb:d:e:o:g:r:t:z:i:C:l:m:s:E:L:M:N:O:G:I:J:T:U:R:")
};

/// Features that are set on the finished volume, as tune2fs sets them.
const LATER: &[&str] = &["quota", "verity", "encrypt", "ea_inode"];

/// Changes to apply to a new volume.
#[derive(Default, Debug, PartialEq)]
pub(super) struct Later {
    pub tune: TuneOptions,
    /// The SELinux label of the root directory.
    root_label: Option<String>,
}

impl Later {
    /// Applies the changes.
    pub fn run(self, image: &Path) -> anyhow::Result<()> {
        if let Some(label) = self.root_label {
            images::change(image, |volume| {
                let value = [label.as_bytes(), b"\0"].concat();
                Ok(volume.set_xattr("/", "security.selinux", &value, SetXattr::Any)?)
            })?;
        }
        if self.tune != TuneOptions::default() {
            changes::tune(image, self.tune)?;
        }
        Ok(())
    }
}

/// Reads a whole device for `-c`, and fails at the first unreadable byte.
pub(super) fn read_all(place: &OsStr) -> Result<(), String> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", place.display());
    if !store::file(Path::new(place)).exists() {
        return Ok(());
    }
    let device = store::open(Path::new(place), Access::ReadOnly);
    let device = device.map_err(|error| one_line(&error))?;
    let mut piece = vec![0; 1 << 20];
    let mut at = 0;
    while at < device.len() {
        let len = (device.len() - at).min(piece.len() as u64);
        let part = piece.get_mut(..len as usize).unwrap_or_default();
        let read = device.read_at(at, part);
        read.map_err(|e| {
            named(&format_args!(
                "{e}: bad blocks are not recorded: replace the disk"
            ))
        })?;
        at += len;
    }
    Ok(())
}

/// Parses the system of `-o`.
pub(super) fn system(call: &mut Call, name: &str) -> Result<(), String> {
    let number = match &*name.to_ascii_lowercase() {
        "linux" | "0" => return Ok(()),
        "gnu" | "hurd" | "1" => 1,
        "masix" | "2" => 2,
        "freebsd" | "3" => 3,
        "lites" | "4" => 4,
        _ => return Err(format!("-o {name} is not supported: no such system")),
    };
    call.for_hurd = number == 1;
    call.extended.push(format!("creator_os={number}"));
    Ok(())
}

/// Splits features into those for the new volume and those to set afterwards.
pub(super) fn features(call: &mut Call, list: &str) {
    for name in list.split([',', ' ']).filter(|name| !name.is_empty()) {
        if LATER.contains(&name) {
            let features = &mut call.later.tune.features;
            let comma = if features.is_empty() { "" } else { "," };
            *features = format!("{features}{comma}{name}");
        } else if !name
            .strip_prefix('^')
            .is_some_and(|name| LATER.contains(&name))
        {
            call.features.push(name.to_owned());
        }
    }
}

/// Parses extended options.
pub(super) fn extended(call: &mut Call, list: &str) -> Result<(), String> {
    for option in list.split(',') {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        if OPTIONS.ignored.contains(&key) {
            continue;
        }
        if OPTIONS.words_without.contains(&key) {
            return Err(format!("-E {key} is not supported"));
        }
        match key {
            "offset" => {
                let bytes = extant_terminal::numbers::size(value);
                let bytes = bytes.map_err(|_| format!("-E {option}: not a number of bytes"))?;
                call.offset = Some(bytes).filter(|bytes| *bytes > 0);
            }
            "root_owner" if value.is_empty() => {
                let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
                let owner = format!("root_owner={}:{}", user.as_raw(), group.as_raw());
                call.extended.push(owner);
            }
            "root_selinux" => call.later.root_label = Some(value.to_owned()),
            "quotatype" => call.later.tune.quota = value.replace(':', ","),
            "mmp_update_interval" => {
                let seconds = value
                    .parse()
                    .map_err(|_| format!("-E {option}: not a number"))?;
                call.later.tune.mmp_interval = Some(seconds);
            }
            "revision" if value == "0" => call.old_revision = true,
            _ => call.extended.push(option.to_owned()),
        }
    }
    Ok(())
}

/// Reads the list of `-l`, which must be empty.
pub(super) fn no_bad_blocks(file: &OsStr) -> Result<(), String> {
    let text = std::fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
    if text.trim_ascii().is_empty() {
        Ok(())
    } else {
        Err(format!(
            "-l {}: bad blocks are not recorded: replace the disk",
            file.display()
        ))
    }
}

/// Chooses the quotas of a volume: with projects also theirs, as mke2fs does.
pub(super) fn quotas(call: &mut Call) {
    let tune = &call.later.tune;
    let keeps = tune.features.split(',').any(|name| name == "quota");
    let projects = call.features.iter().any(|name| name == "project");
    if keeps && projects && tune.quota.is_empty() {
        call.later.tune.quota = "usrquota,grpquota,prjquota".into();
    }
}

/// Adds the options that revision 0 and the Hurd imply.
pub(super) fn revision(call: &mut Call) -> Result<(), String> {
    if call.old_revision {
        let has = !call.features.is_empty() || !call.later.tune.features.is_empty();
        if has || call.given.contains(['I', 'j', 'J']) {
            return Err("revision 0 has neither features nor a choice of inodes".into());
        }
        call.fs_type = Some("ext2".into());
        call.words.extend(["-I".into(), "128".into()]);
        call.given.push('I');
        call.extended.push("revision=0".into());
    }
    if call.for_hurd {
        call.features
            .push("^filetype,^huge_file,^metadata_csum,^orphan_file".into());
        if !call.given.contains('I') {
            call.words.extend(["-I".into(), "128".into()]);
            call.given.push('I');
        }
    }
    Ok(())
}
