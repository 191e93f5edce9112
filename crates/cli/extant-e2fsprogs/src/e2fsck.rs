//! `e2fsck`, `fsck.ext2`, `fsck.ext3`, `fsck.ext4`: run `extant check` and `extant repair`. An image marked clean is
//! not checked, unless `-f` is given or a check is due by mount count or interval.

use super::call::{self, Answer, Answered, Called};
use super::external_journal;
use super::getopt::{self, Options, ParsedOptions};
use super::mke2fs_options::{no_bad_blocks, read_all};
use super::{changes, listing};
use crate::refusal::Refusal;
use blockdev::{Access, BlockDevice};
use ext4_format::features::{Features, Incompat, RoCompat};
use ext4_format::superblock::{
    RawSuperblock, STATE_ERROR, STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE,
};
use extant_cli_core::format::clock;
use extant_cli_core::format::show::show;
use extant_cli_core::image::identity::identity;
use extant_cli_core::image::{images, store};
use extant_terminal::output::one_line;
use extant_tune::TuneOptions;
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write};
use std::path::Path;

/// Exit code of fsck for a wrong command line.
pub const WRONG_USAGE: u8 = 16;
/// Exit code of fsck: all errors were corrected.
const MENDED: u8 = 1;
/// Exit code of fsck: the image could not be checked.
const FAILED: u8 = 8;

pub(super) const OPTIONS: Options = Options {
    without: &[('L', "the list of bad blocks in the image is kept")],
    ignored: &[
        "nodiscard",
        "readahead_kb",
        "optimize_extents",
        "no_optimize_extents",
        "inode_count_fullmap",
        "no_inode_count_fullmap",
        "clear_all_uninit_bits",
        "fixes_only",
        "check_encoding",
        "ea_ver",
    ],
    wrong_usage: WRONG_USAGE,
    contradiction: |taken| Mode::of(taken).map(drop),
    ..Options::of("panyrcdfvtFVDkb:B:C:E:j:l:L:z:P:I:N:s:")
};

/// Supported options of `-E`.
const EXTENDED: &[&str] = &[
    "discard",
    "journal_only",
    "unshare_blocks",
    "bmap2extent",
    "fragcheck",
];

/// Mode of treatment of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Ask,
    Preen,
    No,
    Yes,
}

impl Mode {
    /// Returns the mode of the letters. Fails if they name several modes; a letter may be repeated.
    fn of(taken: &ParsedOptions) -> Result<Self, Refusal> {
        let mut mode = Self::Ask;
        for (letter, _) in &taken.options {
            let chosen = match letter {
                'a' | 'p' => Self::Preen,
                'n' => Self::No,
                'y' => Self::Yes,
                _ => continue,
            };
            if mode != Self::Ask && mode != chosen {
                return Err(Refusal("only one of -p, -a, -n and -y".into(), FAILED));
            }
            mode = chosen;
        }
        Ok(mode)
    }
}

fn refuse(line: impl Into<String>) -> Refusal {
    Refusal(line.into(), WRONG_USAGE)
}

/// Fails for letters that exclude each other, with the code of e2fsck.
fn contradictions(taken: &ParsedOptions) -> Result<(), Refusal> {
    let lists = taken.has('l') || taken.has('L');
    let changes = [
        (taken.has('D'), "-D"),
        (taken.has('c'), "-c"),
        (lists, "-l"),
    ];
    let change = changes.into_iter().find(|(given, _)| *given);
    if let Some((_, change)) = change.filter(|_| taken.has('n')) {
        let line = format!("the -n and {change} options are incompatible");
        return Err(Refusal(line, FAILED));
    }
    if taken.has('c') && lists {
        return Err(refuse("the -c and -l options are incompatible"));
    }
    Ok(())
}

pub(super) fn answer(called: &Called) -> Answered {
    let taken = &called.taken;
    let mode = Mode::of(taken)?;
    if taken.has('V') {
        return called.version();
    }
    let [device] = &taken.operands[..] else {
        return Err(refuse("write one device or file"));
    };
    contradictions(taken)?;
    if let Some(list) = taken.value('l').filter(|list| !Path::new(list).exists()) {
        let line = format!("{}: no such file", list.display());
        return Err(Refusal(line, FAILED));
    }
    let options = FsckOptions::of(mode, taken).map_err(refuse)?;
    let progress_fd = progress_fd(taken).map_err(refuse)?;
    let device = &call::device(device);
    options.check(device)?;
    let journal_elsewhere = match external_journal::volume_with(device) {
        None => false,
        Some(sb) => match external_journal::find(&sb, taken.value('j')) {
            Ok(_) => true,
            Err(error) => return without_journal(device, taken.value('j'), &error),
        },
    };
    if let Some(block) = options.backup {
        backup(device, block, options.backup_size)?;
    }
    if options.reads_all {
        read_all(device).map_err(|line| Refusal(line, FAILED))?;
    }
    let undo = options.undo.as_deref();
    let undo = undo.filter(|_| options.mode != Mode::No);
    let done = called.with_undo_of(device, undo, MENDED, || {
        run(called, &options, device, (progress_fd, journal_elsewhere))
    });
    // A lower code stands for a volume that was mended.
    done.map_err(|Refusal(line, code)| Refusal(line, code.max(FAILED)))
}

fn run(
    called: &Called,
    options: &FsckOptions,
    device: &OsString,
    (progress_fd, journal_elsewhere): (Option<u32>, bool),
) -> Answered {
    if options.mode == Mode::Ask && !std::io::stdin().is_terminal() {
        // A file that cannot be opened is a reason that no option changes.
        identity(device.as_ref())?;
        let line = "no terminal to ask at: use -n, -p or -y";
        return Err(Refusal(line.into(), FAILED));
    }
    if options.has("journal_only") {
        return journal_only(device, options.mode);
    }
    if let Some(line) = options.believes(device) {
        // A closed standard output is not a failure of the check.
        let _ = writeln!(std::io::stdout(), "{line}");
        return Ok(Answer::Done(0));
    }
    let mut words = options.words(device, progress_fd);
    if journal_elsewhere && options.mode != Mode::No {
        let line = "its journal is on another device, which is not replayed: only -n checks it";
        return Err(Refusal(line.into(), FAILED));
    }
    if journal_elsewhere {
        words.insert(1, "--journal-elsewhere".into());
    }
    if options.mode == Mode::No {
        return Ok(Answer::Words(words));
    }
    let code = called.code_of(words);
    if code & !MENDED != 0 {
        return Ok(Answer::Done(code));
    }
    match options.afterwards(Path::new(device)) {
        Ok(()) => Ok(Answer::Done(code)),
        Err(error) => Err(Refusal(one_line(&error), FAILED)),
    }
}

/// Reports in the words of e2fsck that the journal of a volume is missing.
fn without_journal(device: &OsStr, given: Option<&OsStr>, error: &anyhow::Error) -> Answered {
    let shown = device.display();
    let errors = format!("\n{shown}: ********** WARNING: Filesystem still has errors **********\n");
    let mut out = std::io::stdout();
    let error = one_line(error);
    let is_told = given.is_none() || error.starts_with("External");
    // A closed standard output is not a failure of the check.
    let _ = if is_told {
        writeln!(out, "{error}\n{errors}")
    } else {
        writeln!(out, "{errors}")
    };
    if is_told {
        return Ok(Answer::Done(external_journal::NOT_FOUND));
    }
    let line = format!("{error} while checking journal for {shown}");
    Err(Refusal(line, external_journal::NOT_FOUND))
}

impl FsckOptions {
    /// Fails for options that exclude each other.
    fn check(&self, device: &OsStr) -> Result<(), Refusal> {
        let shared = || {
            let open = store::open(Path::new(device), Access::ReadOnly).ok();
            let sb = open.and_then(|open| listing::superblock(&open).ok());
            let has = |sb| {
                Features::of(&sb)
                    .ro_compat
                    .contains(RoCompat::SHARED_BLOCKS)
            };
            sb.is_some_and(has)
        };
        let improves = [
            (self.compacts, "-D"),
            (self.has("bmap2extent"), "-E bmap2extent"),
        ];
        let improves = improves.into_iter().find(|(given, _)| *given);
        if let Some((_, option)) = improves.filter(|_| self.only_fixes) {
            let line = format!("the {option} and -E fixes_only options are incompatible");
            return Err(Refusal(line, FAILED));
        }
        // Without shared blocks there is nothing to do in any mode.
        let only_reads = matches!(self.mode, Mode::No | Mode::Preen);
        if self.has("unshare_blocks") && only_reads && shared() {
            return Err(refuse("-E unshare_blocks goes with -y"));
        }
        Ok(())
    }

    fn has(&self, option: &str) -> bool {
        self.extended.iter().any(|said| said == option)
    }

    /// Returns the line about an image that needs no check. May replay its journal first.
    fn believes(&self, device: &OsStr) -> Option<String> {
        if self.forced || !self.extended.is_empty() || self.backup.is_some() || self.compacts {
            return None;
        }
        if let Some(line) = called_clean(device, false) {
            return Some(line);
        }
        if self.mode == Mode::No {
            return None;
        }
        called_clean(device, true)?;
        // If the image cannot be opened, let the repair report that.
        let replayed = changes::replay(Path::new(device)).ok()?;
        if replayed {
            let _ = writeln!(
                std::io::stdout(),
                "{}: recovering journal",
                device.display()
            );
        }
        called_clean(device, false)
    }

    /// Returns the command line of `extant`.
    fn words(&self, device: &OsStr, progress_fd: Option<u32>) -> Vec<OsString> {
        let mut words: Vec<OsString> = match self.mode {
            Mode::No => vec!["check".into()],
            Mode::Preen => vec![
                "repair".into(),
                "-p".into(),
                "--names-of-empty-inodes".into(),
            ],
            Mode::Yes => vec!["repair".into(), "-y".into()],
            Mode::Ask => vec!["repair".into()],
        };
        if let Some(fd) = progress_fd {
            words.extend(["--progress-fd".into(), fd.to_string().into()]);
        }
        words.extend(self.compacts.then(|| "--dirs".into()));
        let unshares = self.mode == Mode::Yes && self.has("unshare_blocks");
        words.extend(unshares.then(|| "--unshare".into()));
        words.extend(["--".into(), device.to_owned()]);
        words
    }
}

impl FsckOptions {
    /// Runs the steps that follow a repair which left the image clean.
    fn afterwards(&self, image: &Path) -> anyhow::Result<()> {
        if self.has("bmap2extent") {
            let sb = listing::superblock_of(image)?;
            if !Features::of(&sb).has_extents() {
                let features = TuneOptions {
                    features: "extent".into(),
                    ..TuneOptions::default()
                };
                changes::tune(image, features)?;
            }
            changes::map_by_extents(image)?;
        }
        if self.has("fragcheck") {
            let device = images::device(image)?;
            let found = extant_tune::fragments(&device)?;
            for file in &found.fragmented {
                let (ino, pieces, blocks) = (file.ino.0, file.pieces, file.blocks);
                writeln!(
                    std::io::stdout(),
                    "{ino:6}: {pieces} extents for {blocks} blocks"
                )?;
            }
        }
        if self.has("discard") {
            changes::trim(image)?;
        }
        let checked = TuneOptions {
            mounts: Some(0),
            last_checked: Some(clock::stamp()?),
            ..TuneOptions::default()
        };
        changes::tune(image, checked)
    }
}

/// Checks that `-b` names a copy of the superblock. The repair finds all copies itself.
fn backup(device: &OsStr, block: u64, size: Option<u64>) -> Result<(), Refusal> {
    let failed = |error: anyhow::Error| Refusal(one_line(&error), FAILED);
    let place = match size {
        Some(size) => block.checked_mul(size),
        None => match listing::place_of_copy(device.as_ref(), block) {
            Ok((block, size)) => block.checked_mul(size),
            Err(error) => return Err(failed(error)),
        },
    };
    let open = images::device(device.as_ref()).map_err(failed)?;
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    // In block 0, the boot sector comes before the superblock.
    let place = place.map(|place| place.max(SUPERBLOCK_OFFSET));
    let read = place.is_some_and(|place| open.read_at(place, &mut bytes).is_ok());
    if read && RawSuperblock::parse(&bytes).is_ok() {
        return Ok(());
    }
    let line = format!(
        "{}: no copy of the superblock at block {block}",
        device.display()
    );
    Err(Refusal(line, FAILED))
}

/// Replays the journal without a check.
fn journal_only(device: &OsStr, mode: Mode) -> Answered {
    if mode == Mode::No {
        let open =
            images::device(device.as_ref()).and_then(|open| listing::superblock(&*open).map(drop));
        return match open {
            Ok(()) => Ok(Answer::Done(0)),
            Err(error) => Err(Refusal(one_line(&error), FAILED)),
        };
    }
    match changes::replay(Path::new(device)) {
        Ok(replayed) => Ok(Answer::Done(u8::from(replayed) * MENDED)),
        Err(error) => Err(Refusal(one_line(&error), FAILED)),
    }
}

/// Parses the descriptor of `-C`; 0 is for a bar at the terminal, which is the default, and negative numbers for a
/// later bar.
fn progress_fd(taken: &ParsedOptions) -> Result<Option<u32>, String> {
    let Some(value) = taken.value('C') else {
        return Ok(None);
    };
    let text = getopt::text('C', value)?;
    let fd: i32 = text
        .parse()
        .map_err(|_| format!("-C {text}: no descriptor"))?;
    Ok(u32::try_from(fd).ok().filter(|&fd| fd > 0))
}

/// Parsed options.
#[derive(Debug)]
struct FsckOptions {
    mode: Mode,
    forced: bool,
    compacts: bool,
    /// True if all blocks are read before the check (`-c`).
    reads_all: bool,
    undo: Option<OsString>,
    /// Supported options of `-E`.
    extended: Vec<String>,
    /// Whether the check shall only fix errors.
    only_fixes: bool,
    /// Block number of `-b`, and block size of `-B`, which has no effect alone.
    backup: Option<u64>,
    backup_size: Option<u64>,
}

impl FsckOptions {
    fn of(mode: Mode, taken: &ParsedOptions) -> Result<Self, String> {
        let mut options = Self {
            mode,
            forced: false,
            compacts: false,
            reads_all: false,
            undo: None,
            extended: Vec::new(),
            only_fixes: false,
            backup: None,
            backup_size: None,
        };
        for (letter, value) in &taken.options {
            OPTIONS.refuse(*letter)?;
            let number = || {
                let text = getopt::text(*letter, value)?;
                getopt::number(text).ok_or_else(|| format!("-{letter} {text}: not a number"))
            };
            match letter {
                'f' => options.forced = true,
                'D' => options.compacts = true,
                'c' => {
                    options.reads_all = true;
                    // `-c` forces a check, even of a clean volume.
                    options.forced = true;
                }
                'l' => no_bad_blocks(value)?,
                'z' => options.undo = Some(value.clone()),
                'E' => options.extended(getopt::text('E', value)?)?,
                'b' => options.backup = Some(number()?),
                'B' => options.backup_size = Some(number()?),
                // Sizes of buffers have no effect.
                'I' | 'P' => drop(number()?),
                // Progress is shown at a terminal anyway; times and program names have no effect.
                _ => {}
            }
        }
        Ok(options)
    }

    fn extended(&mut self, text: &str) -> Result<(), String> {
        for option in text.split(',').filter(|option| !option.is_empty()) {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            if key == "ea_ver" && !["1", "2"].contains(&value) {
                return Err(format!("-E {option}: versions of attributes are 1 and 2"));
            }
            if key == "readahead_kb" && getopt::number(value).is_none() {
                return Err(format!("-E {option}: not a number of KiB"));
            }
            self.only_fixes |= key == "fixes_only";
            if OPTIONS.ignored.contains(&key) {
                continue;
            }
            if !EXTENDED.contains(&key) {
                return Err(format!("-E {option} is not supported"));
            }
            self.extended.push(key.to_owned());
        }
        Ok(())
    }
}

/// Returns the line about an image that needs no check; `replayed`: its journal was replayed and its orphans deleted.
fn called_clean(device: &OsStr, replayed: bool) -> Option<String> {
    let open = store::open(Path::new(device), Access::ReadOnly).ok()?;
    let sb = listing::superblock(&open).ok()?;
    let state = sb.state.get();
    let needs_recovery = sb.feature_incompat.get() & Incompat::NEEDS_RECOVERY.bits() != 0;
    if sb.volume_len().is_none_or(|length| length > open.len())
        || state & STATE_VALID == 0
        || state & STATE_ERROR != 0
        || is_due(&sb)
        || (!replayed && (needs_recovery || sb.last_orphan.get() != 0))
    {
        return None;
    }
    let label = sb.label();
    let name = if label.is_empty() {
        device.display().to_string()
    } else {
        show(label)
    };
    let (inodes, free) = (sb.inodes_count.get(), sb.free_inodes_count.get());
    let blocks = sb.blocks_count();
    Some(format!(
        "{name}: clean, {}/{inodes} files, {}/{blocks} blocks",
        inodes.saturating_sub(free),
        blocks.saturating_sub(sb.free_blocks())
    ))
}

/// Returns whether a check is due by the mount count or the time since the last check.
fn is_due(sb: &RawSuperblock) -> bool {
    let most = sb.max_mnt_count.get().cast_signed();
    let mounts = sb.mnt_count.get().cast_signed();
    let interval = u64::from(sb.checkinterval.get());
    let last = u64::from(sb.lastcheck.get()) | u64::from(sb.lastcheck_hi) << 32;
    let now = clock::stamp().unwrap_or(0).cast_unsigned();
    most > 0 && mounts >= most || interval > 0 && now >= last.saturating_add(interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_way_to_treat_an_image() {
        let said = |line: &str| {
            let taken = OPTIONS.parse(line.split(' ').map(OsString::from));
            let taken = taken.map_err(|Refusal(line, code)| format!("{code}: {line}"))?;
            let mode = Mode::of(&taken).map_err(|Refusal(line, _)| line)?;
            FsckOptions::of(mode, &taken).map(|options| (options.mode as u8, options.forced))
        };
        assert_eq!(said("-fn x").unwrap(), (Mode::No as u8, true));
        assert_eq!(
            said("-p -C 0 -E nodiscard x").unwrap(),
            (Mode::Preen as u8, false)
        );
        assert_eq!(
            said("-fn -y x").unwrap_err(),
            "8: only one of -p, -a, -n and -y"
        );
        // The first error of the line is reported, as by e2fsck.
        for (line, error) in [
            ("-p -y -Q x", "8: only one of -p, -a, -n and -y"),
            ("-p -Q -y x", "16: -Q: no such option"),
            ("-n -y -E", "8: only one of -p, -a, -n and -y"),
            ("-n -E", "16: -E takes a value"),
        ] {
            assert_eq!(said(line).unwrap_err(), error, "{line}");
        }
        for line in ["-P x i", "-y -I 1k i", "-E ea_ver=9 i", "-E ea_ver i"] {
            assert!(said(line).is_err(), "{line}");
        }
        assert!(said("-y -P 4 -I 2048 -E ea_ver=2 i").is_ok());
        assert_eq!(said("-b 32768 -y x").unwrap(), (Mode::Yes as u8, false));
        assert_eq!(
            said("-E discard,fsync x").unwrap_err(),
            "-E fsync is not supported"
        );
    }
}
