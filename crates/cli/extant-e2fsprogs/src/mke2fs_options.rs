//! Options of mke2fs that need more than an option of `extant mkfs`.

use crate::changes;
use crate::getopt::{self, Options};
use blockdev::{Access, BlockDevice};
use extant::SetXattr;
use extant_cli_core::address::schemes;
use extant_cli_core::image::{images, store};
use extant_terminal::output::{one_line, warn};
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
    /// Directory or archive of `-d`.
    pub source: Option<OsString>,
    /// Whether `-j` or `-J` asks for a journal, and the lists of `-J`.
    pub has_journal: bool,
    pub journal: Vec<String>,
    /// All features: first the features of the configuration, then those of the command line.
    pub all_features: String,
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
    let names = list.split([',', ' ']).filter(|name| !name.is_empty());
    for name in names.map(getopt::feature) {
        let name = &*name;
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
                let seconds = getopt::number(value).filter(|seconds| *seconds <= MOST_SECONDS);
                let seconds = seconds.and_then(|seconds| u16::try_from(seconds).ok());
                let bad = || format!("-E {option}: write 0 to {MOST_SECONDS} seconds");
                call.later.tune.mmp_interval = Some(seconds.ok_or_else(bad)?);
            }
            "revision" if value == "0" => call.old_revision = true,
            _ => call.extended.push(option.to_owned()),
        }
    }
    Ok(())
}

/// Largest interval of multiple mount protection, in seconds.
const MOST_SECONDS: u64 = 300;

/// Returns whether the last mention of a feature in a list sets it.
pub(super) fn is_on(list: &str, name: &str) -> bool {
    let mut words = list.split([',', ' ']);
    let last = words.rfind(|word| *word == "none" || word.trim_start_matches('^') == name);
    last == Some(name)
}

/// Parses the block size of `-b`. A negative number is a minimum.
pub(super) fn block_size_of(call: &mut Call, text: &str) -> Result<(), String> {
    let (field, number) = match text.strip_prefix('-') {
        Some(number) => (&mut call.least_block_size, number),
        None => (&mut call.block_size, text),
    };
    let bytes = getopt::bytes(number, 1);
    let bytes = bytes.ok_or_else(|| format!("-b {text}: not a number of bytes"))?;
    if bytes < 1024 {
        return Err(format!("-b {text}: blocks have at least 1024 bytes"));
    }
    *field = Some(bytes);
    Ok(())
}

/// Passes the value of a letter to `extant mkfs`, which knows the letter. The last value counts.
pub(super) fn passed(call: &mut Call, letter: char, text: &str) -> Result<(), String> {
    let not_a_number = || format!("-{letter} {text}: not a number");
    let number = || getopt::number(text).ok_or_else(not_a_number);
    let value = match letter {
        'i' => {
            let bytes = getopt::bytes(text, 1).filter(|n| (1024..=67_108_864).contains(n));
            let bad = || format!("-i {text}: write 1024 to 67108864 bytes per inode");
            bytes.ok_or_else(bad)?.to_string()
        }
        // Zero stands for the default, and an empty value for zero.
        'N' | 'I' | 'g' if text.is_empty() || number()? == 0 => {
            call.given.retain(|given| given != letter);
            getopt::remove_word(&mut call.words, letter);
            return Ok(());
        }
        'N' | 'I' | 'g' => number()?.to_string(),
        'G' => {
            let groups = number()?;
            if !groups.is_power_of_two() || groups > 1 << 31 {
                return Err(format!("-G {text}: not a power of two up to 2^31"));
            }
            groups.to_string()
        }
        'm' => {
            let percent = if text.is_empty() {
                Some(0.0)
            } else {
                text.parse().ok()
            };
            let valid = percent.filter(|percent| (0.0..=50.0).contains(percent));
            let valid: f64 =
                valid.ok_or_else(|| format!("-m {text}: not a percentage from 0 to 50"))?;
            valid.to_string()
        }
        _ if text.is_empty() => return Err(format!("-{letter}: an empty value")),
        _ => text.to_owned(),
    };
    getopt::set_word(&mut call.words, letter, value.as_ref());
    Ok(())
}

/// Adds the options of `-J`. Options of zero stand for the default, and positions may have a unit.
pub(super) fn journal(call: &Call, words: &mut Vec<OsString>) -> Result<(), String> {
    let mut options = Vec::new();
    for option in call.journal.iter().flat_map(|list| list.split(',')) {
        match option.split_once('=') {
            Some(("size" | "fast_commit_size", "" | "0")) => {}
            Some(("location", place)) => {
                let block = call.block_size.unwrap_or(1024);
                let bytes = getopt::bytes(place, block);
                let bad = || format!("-J {option}: not the number of a block");
                options.push(format!("location={}", bytes.ok_or_else(bad)? / block));
            }
            _ => options.push(option.to_owned()),
        }
    }
    options.retain(|option| !option.is_empty());
    if !options.is_empty() {
        words.extend(["-J".into(), options.join(",").into()]);
    }
    Ok(())
}

/// Drops an interval of multiple mount protection for a volume without it. Images on a server have the protection by
/// default.
pub(super) fn mmp_interval(call: &mut Call, device: &OsStr) {
    let is_used = is_on(&call.all_features, "mmp") || schemes::is_remote(Path::new(device));
    if call.later.tune.mmp_interval.is_some() && !is_used {
        warn("-E mmp_update_interval has no effect without the feature mmp");
        call.later.tune.mmp_interval = None;
    }
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
        let has =
            call.has_journal || !call.features.is_empty() || !call.later.tune.features.is_empty();
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
