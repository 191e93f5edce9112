//! `e2fsck`, `fsck.ext2`, `fsck.ext3`, `fsck.ext4`: by `extant check` and `extant repair`. An image that says that it is clean is
//! believed, unless `-f` is given or its count of mounts or its interval is over.

use super::getopt::{self, Taken};
use super::{Answer, Answered, Refusal, version};
use blockdev::{Access, BlockDevice};
use ext4_format::features::Incompat;
use ext4_format::superblock::{
    RawSuperblock, STATE_ERROR, STATE_VALID, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE,
};
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write};
use std::path::Path;

/// As fsck ends for wrong usage.
const WRONG_USAGE: u8 = 16;
/// As fsck ends if the image could not be checked.
const FAILED: u8 = 8;

const ALONE: &str = "panyrcdfvtFVDk";
const WITH_VALUE: &str = "bBCEjlLzPINs";

/// Letters that nothing here corresponds to, and why.
const WITHOUT: &[(char, &str)] = &[
    ('c', "bad blocks are not searched for"),
    ('l', "bad blocks are not recorded"),
    ('L', "bad blocks are not recorded"),
    ('k', "bad blocks are not recorded"),
    ('b', "backups of the superblock are found without it"),
    ('B', "backups of the superblock are found without it"),
    ('j', "external journals are not replayed"),
];

/// How an image is to be treated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Ask,
    Preen,
    No,
    Yes,
}

fn refuse(line: impl Into<String>) -> Refusal {
    Refusal(line.into(), WRONG_USAGE)
}

pub(super) fn answer(name: &'static str, args: Vec<OsString>) -> Answered {
    let taken = getopt::take(args, ALONE, WITH_VALUE).map_err(refuse)?;
    if taken.options.iter().any(|(letter, _)| *letter == 'V') {
        return version(name);
    }
    let (mode, forced, undo) = options(&taken).map_err(refuse)?;
    let compacts = taken.options.iter().any(|(letter, _)| *letter == 'D');
    if compacts && mode == Mode::No {
        let line = "the -n and -D options are incompatible";
        return Err(Refusal(line.into(), FAILED));
    }
    if compacts && undo.is_some() {
        return Err(refuse("-D goes not with -z: -D alone afterwards"));
    }
    let progress_fd = progress_fd(&taken).map_err(refuse)?;
    let [device] = &taken.operands[..] else {
        return Err(refuse("write one device or file"));
    };
    if mode == Mode::Ask && !std::io::stdin().is_terminal() {
        let line = "no terminal to ask at: use -n, -p or -y";
        return Err(Refusal(line.into(), FAILED));
    }
    if !forced && let Some(line) = called_clean(device) {
        // A closed output is not this answer's fault.
        let _ = writeln!(std::io::stdout(), "{line}");
        return Ok(Answer::Done(0));
    }
    let mut words: Vec<OsString> = match mode {
        Mode::No => vec!["check".into()],
        Mode::Preen => vec!["repair".into(), "-p".into()],
        Mode::Yes => vec!["repair".into(), "-y".into()],
        Mode::Ask => vec!["repair".into()],
    };
    if let Some(fd) = progress_fd {
        words.extend(["--progress-fd".into(), fd.to_string().into()]);
    }
    if let Some(undo) = undo {
        words.extend(["--undo".into(), undo]);
    }
    words.extend(compacts.then(|| "--dirs".into()));
    words.push(device.clone());
    Ok(Answer::Words(words))
}

/// The descriptor of `-C`; 0 is for a bar at the terminal, which is there anyway, and a negative one for later.
fn progress_fd(taken: &Taken) -> Result<Option<u32>, String> {
    let Some((_, value)) = taken.options.iter().find(|(letter, _)| *letter == 'C') else {
        return Ok(None);
    };
    let text = getopt::text('C', value)?;
    let fd: i32 = text
        .parse()
        .map_err(|_| format!("-C {text}: no descriptor"))?;
    Ok(u32::try_from(fd).ok().filter(|&fd| fd > 0))
}

fn options(taken: &Taken) -> Result<(Mode, bool, Option<OsString>), String> {
    let (mut mode, mut forced, mut undo) = (Mode::Ask, false, None);
    for (letter, value) in &taken.options {
        if let Some((_, why)) = WITHOUT.iter().find(|(without, _)| without == letter) {
            return Err(format!("-{letter} is not supported: {why}"));
        }
        let chosen = match letter {
            'a' | 'p' => Mode::Preen,
            'n' => Mode::No,
            'y' => Mode::Yes,
            _ => Mode::Ask,
        };
        if chosen != Mode::Ask {
            if mode != Mode::Ask && mode != chosen {
                return Err("only one of -p, -a, -n and -y".into());
            }
            mode = chosen;
        }
        match letter {
            'f' => forced = true,
            'z' => undo = Some(value.clone()),
            'E' => extended(getopt::text('E', value)?)?,
            // Progress is shown at a terminal; times, buffers and names of the program say nothing here.
            _ => {}
        }
    }
    Ok((mode, forced, undo))
}

/// Options that change nothing here; others are refused.
fn extended(text: &str) -> Result<(), String> {
    let says_nothing = |option: &&str| {
        let key = option.split_once('=').map_or(*option, |(key, _)| key);
        matches!(
            key,
            "" | "nodiscard" | "readahead_kb" | "no_optimize_extents" | "inode_count_fullmap"
        )
    };
    match text.split(',').find(|option| !says_nothing(option)) {
        Some(option) => Err(format!("-E {option} is not supported")),
        None => Ok(()),
    }
}

/// The line about an image that needs no check.
fn called_clean(device: &OsStr) -> Option<String> {
    let open = crate::store::open(Path::new(device), Access::ReadOnly).ok()?;
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    open.read_at(SUPERBLOCK_OFFSET, &mut bytes).ok()?;
    let sb = RawSuperblock::parse(&bytes).ok()?;
    let state = sb.state.get();
    if state & STATE_VALID == 0
        || state & STATE_ERROR != 0
        || sb.feature_incompat.get() & Incompat::NEEDS_RECOVERY.bits() != 0
        || is_due(&sb)
        // A journal that was marked, files that wait for their end.
        || sb.last_orphan.get() != 0
    {
        return None;
    }
    let label = sb.label();
    let name = match label.is_empty() {
        true => device.display().to_string(),
        false => crate::show::show(label),
    };
    let (inodes, free) = (sb.inodes_count.get(), sb.free_inodes_count.get());
    let blocks = sb.blocks_count();
    Some(format!(
        "{name}: clean, {}/{inodes} files, {}/{blocks} blocks",
        inodes.saturating_sub(free),
        blocks.saturating_sub(sb.free_blocks())
    ))
}

/// Whether the count of mounts, or the time since the last check, asks for one.
fn is_due(sb: &RawSuperblock) -> bool {
    let most = sb.max_mnt_count.get().cast_signed();
    let mounts = sb.mnt_count.get().cast_signed();
    let interval = u64::from(sb.checkinterval.get());
    let last = u64::from(sb.lastcheck.get()) | u64::from(sb.lastcheck_hi) << 32;
    let now = crate::clock::stamp().unwrap_or(0).cast_unsigned();
    most > 0 && mounts >= most || interval > 0 && now >= last.saturating_add(interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_way_to_treat_an_image() {
        let said = |line: &str| {
            let taken = getopt::take(
                line.split(' ').map(OsString::from).collect(),
                ALONE,
                WITH_VALUE,
            );
            options(&taken?).map(|(mode, forced, _)| (mode as u8, forced))
        };
        assert_eq!(said("-fn x").unwrap(), (Mode::No as u8, true));
        assert_eq!(
            said("-p -C 0 -E nodiscard x").unwrap(),
            (Mode::Preen as u8, false)
        );
        assert_eq!(
            said("-fn -y x").unwrap_err(),
            "only one of -p, -a, -n and -y"
        );
        assert!(
            said("-b 32768 x")
                .unwrap_err()
                .starts_with("-b is not supported: backups")
        );
        assert_eq!(
            said("-E fragcheck x").unwrap_err(),
            "-E fragcheck is not supported"
        );
    }
}
