//! Damage found on an open volume: rules of the format that its bytes break.
//!
//! Each finding is counted, reported to the hook of [`VolumeOptions::on_damage`](crate::VolumeOptions::on_damage), and
//! recorded in the superblock as ext4 records it: the count of errors, the error bit of the state, and the first and
//! the last error with time, function, line, inode and block. The same finding (rule and place) counts once while a
//! volume is open.
//!
//! The record is written to the device at once, past the journal, with the lock of the superblock's place held
//! ([`Store::write_errors`]), and every later image of the superblock carries it ([`DamageLog::apply`]). A replay of an
//! older image in the log removes the record, so recovery restores it ([`RawSuperblock::keep_errors`]).
//!
//! Failures of the device are not damage and are not recorded.

use crate::base::error::Error;
use crate::base::locks::{self, Mutex};
use crate::store::Store;
use ext4_format::superblock::{ErrorRecord, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use ext4_format::{FormatError, GroupNr, InodeNr, Where};
use std::collections::HashSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Distinct findings that are counted at most, so that a broken image cannot fill memory.
const MOST: usize = 4096;

/// A rule of the format that the volume's bytes break.
///
/// ```
/// let options = extant::VolumeOptions::new().on_damage(|damage| eprintln!("{damage}"));
/// # let _ = options;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The rule, and the place where it is broken.
    pub rule: String,
    /// The part of the engine that found it.
    pub function: &'static str,
    /// Line of the source that found it.
    pub line: u32,
    /// The inode concerned, or 0.
    pub ino: u32,
    /// The block concerned, or 0.
    pub block: u64,
    /// The time of the finding, in seconds since 1970.
    pub secs: i64,
    code: u8,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.rule)?;
        let named = self.rule.contains(&format!("inode {}", self.ino));
        if self.ino != 0 && !named {
            write!(f, " (inode {})", self.ino)?;
        }
        Ok(())
    }
}

impl Damage {
    fn record(&self) -> ErrorRecord<'_> {
        ErrorRecord {
            secs: self.secs,
            function: self.function,
            line: self.line,
            ino: self.ino,
            block: self.block,
            code: self.code,
        }
    }
}

#[derive(Default)]
struct Noted {
    seen: HashSet<String>,
    first: Option<Damage>,
    last: Option<Damage>,
    count: u32,
}

/// The findings on a volume since it was opened.
#[derive(Default)]
pub(crate) struct DamageLog {
    noted: Mutex<Noted, locks::Damage>,
    /// The number of findings in `noted`, readable without its lock.
    count: AtomicU64,
    /// Errors that the superblock counted when the volume was opened.
    before: u32,
    /// A group whose free blocks or inodes are out of use because it is damaged.
    refused: OnceLock<GroupNr>,
}

impl DamageLog {
    /// Makes a log for a volume whose superblock counts `before` errors.
    pub fn new(before: u32) -> Self {
        Self {
            before,
            ..Self::default()
        }
    }

    /// Returns the number of findings until now.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Adds a finding; false if it was known, or exceeds the limit.
    fn add(&self, damage: &Damage) -> bool {
        let mut noted = self.noted.lock();
        if noted.seen.len() >= MOST || !noted.seen.insert(damage.rule.clone()) {
            return false;
        }
        noted.first.get_or_insert_with(|| damage.clone());
        noted.last = Some(damage.clone());
        noted.count += 1;
        self.count.store(noted.count.into(), Ordering::Relaxed);
        true
    }

    /// Adds the findings to an image of the superblock. May be repeated.
    pub fn apply(&self, sb: &mut RawSuperblock) {
        if self.count() == 0 {
            return;
        }
        let noted = self.noted.lock();
        sb.error_count.set(self.before);
        for damage in [&noted.first, &noted.last].into_iter().flatten() {
            sb.record_error(&damage.record());
        }
        sb.error_count.set(self.before.saturating_add(noted.count));
    }

    /// Stops the allocation from a group.
    pub fn refuse(&self, group: GroupNr) {
        let _ = self.refused.set(group);
    }
}

/// Returns the inode and block of a place, if the place has them.
fn place(at: Where) -> (u32, u64) {
    match at {
        Where::Block(block, _) => (0, block.0),
        Where::Inode(ino) => (ino.0, 0),
        Where::InodeBlock(ino, block) => (ino.0, block),
        _ => (0, 0),
    }
}

impl Store {
    /// Notes that the volume's bytes break a rule, if the error reports that. `ino` is the inode being used, if there
    /// is one. The volume's policy may stop it. May be called with any lock held but those of the journal.
    #[cold]
    #[track_caller]
    pub(crate) fn note_damage(&self, error: &Error, function: &'static str, ino: Option<InodeNr>) {
        if !self.add_damage(error, function, ino) || self.health.read_only.is_some() {
            return;
        }
        if self.health.stops_on_damage && self.health.stopped.get().is_none() {
            self.stop(error);
        } else {
            self.write_errors();
        }
    }

    /// Counts and reports a finding. Returns false if the finding was known or the error does not report damage. Also
    /// returns false if the volume has ended, because changes that were only in memory are missing then.
    #[track_caller]
    pub(super) fn add_damage(
        &self,
        error: &Error,
        function: &'static str,
        ino: Option<InodeNr>,
    ) -> bool {
        let (at, code) = match error {
            Error::Format(FormatError::Corrupt { at, .. }) => (*at, 5),
            Error::Format(FormatError::Checksum { at, .. }) => (*at, 4),
            _ => return false,
        };
        if self.check_here().is_err() {
            return false;
        }
        let (named, block) = place(at);
        let damage = Damage {
            rule: error.to_string(),
            function,
            line: std::panic::Location::caller().line(),
            ino: ino.map_or(named, |ino| ino.0),
            block,
            secs: crate::base::now().secs(),
            code,
        };
        if !self.health.damage.add(&damage) {
            return false;
        }
        tracing::error!(%damage, function, "damage");
        if let Some(hook) = &self.health.on_damage {
            (hook.0)(&damage);
        }
        true
    }

    /// Writes the findings into the superblock on the device, as far as the device allows it. On a frozen volume
    /// nothing is written: the next image of the superblock has the findings.
    pub(crate) fn write_errors(&self) {
        if self.health.read_only.is_some() || self.gate.is_shut() {
            return;
        }
        let _place = self.superblock_io.lock();
        // The thread that cut the volume off waits for the lock, and relies on it that nothing is written afterwards.
        if self.check_here().is_ok() {
            self.write_errors_locked();
        }
    }

    /// Like [`write_errors`](Self::write_errors), with the lock of the superblock's place held.
    pub(crate) fn write_errors_locked(&self) {
        if self.health.damage.count() == 0 {
            return;
        }
        let mut bytes = [0; SUPERBLOCK_SIZE];
        // The superblock is read from the device, because its image in memory may not be durable.
        let recorded = self.device.read_at(SUPERBLOCK_OFFSET, &mut bytes).is_ok()
            && RawSuperblock::parse(&bytes).is_ok_and(|before| {
                let mut sb = before;
                self.health.damage.apply(&mut sb);
                sb.set_checksum_untorn(&before);
                *sb.bytes() == bytes
                    || self.device.write_at(SUPERBLOCK_OFFSET, sb.bytes()).is_ok()
                        && self.device.flush().is_ok()
            });
        if !recorded {
            tracing::error!("the damage could not be recorded in the superblock");
        }
    }

    /// Returns the error "no space", or the damage of a group whose space is missing.
    #[cold]
    pub(crate) fn no_space(&self, what: &'static str) -> Error {
        match self.health.damage.refused.get() {
            Some(&group) => FormatError::corrupt(
                "bitmap or descriptor (its free space is out of use, and no other is left)",
                Where::Group(group),
            )
            .into(),
            None => Error::NoSpace(what),
        }
    }

    /// Adds the explanation of [`no_space`](Self::no_space) to an error for lack of space.
    pub(crate) fn explain_space(&self, error: Error) -> Error {
        match error {
            Error::NoSpace(what) => self.no_space(what),
            other => other,
        }
    }
}
