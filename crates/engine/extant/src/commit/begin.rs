//! Opening transactions: here an operation waits for room in the log, and reserves blocks for the formatter.

use crate::base::error::{Error, Result};
use crate::base::schedule::{self, Point};
use crate::commit::Committer;
use crate::log::transaction::{Cost, Transaction};
use crate::space::guards::NewNumber;
use crate::space::orlov::InodePurpose;
use crate::types::credentials::Credentials;
use ext4_format::InodeNr;

impl Committer {
    /// Opens a transaction in the name of a caller: waits for log space and reserves metadata blocks.
    /// Call it with no bucket or inode locked.
    #[inline(always)]
    pub(crate) fn begin(&self, who: &Credentials, cost: Cost) -> Result<Transaction<'_>> {
        let _span = lockmeter::span!("transaction start");
        self.wait_until_ready()?;
        crate::base::jitter::point();
        schedule::reached(Point::Begun);
        let tx = Transaction {
            log: &self.log,
            reserved: cost.meta_blocks,
        };
        if self.space.counts.take(who, u64::from(cost.meta_blocks)) {
            Ok(tx)
        } else {
            self.begin_scarce(who, tx)
        }
    }

    /// Waits until a transaction may be opened; in the common case it may at once.
    #[inline(always)]
    fn wait_until_ready(&self) -> Result<()> {
        let ready = self.store.gate.is_open()
            && self.store.is_writable()
            && !self.must_push(self.log.lists.context());
        if ready { Ok(()) } else { self.get_ready() }
    }

    #[cold]
    #[inline(never)]
    fn get_ready(&self) -> Result<()> {
        self.store.gate.look();
        self.store.check_writable()?;
        self.throttle()
    }

    /// Takes the blocks of a transaction where too few are left, at first sight.
    #[cold]
    #[inline(never)]
    fn begin_scarce<'a>(
        &'a self,
        who: &Credentials,
        mut tx: Transaction<'a>,
    ) -> Result<Transaction<'a>> {
        let blocks = std::mem::take(&mut tx.reserved);
        if !self.take_scarce(who, u64::from(blocks))? {
            return Err(self.store.no_space("no block left for metadata"));
        }
        tx.reserved = blocks;
        Ok(tx)
    }

    /// Opens a transaction that only changes or removes existing objects. It allocates nothing, so it works on a full
    /// volume.
    #[inline(always)]
    pub(crate) fn begin_core(&self) -> Result<Transaction<'_>> {
        let _span = lockmeter::span!("transaction start");
        self.wait_until_ready()?;
        Ok(Transaction {
            log: &self.log,
            reserved: 0,
        })
    }

    /// Opens a transaction that makes room, for which it may need some: it works on a full volume.
    pub(crate) fn begin_freeing(&self, cost: Cost) -> Result<Transaction<'_>> {
        let blocks = u64::from(cost.meta_blocks);
        self.store.gate.look();
        // Unused reservations return to the count when a context is pushed.
        if !self.space.counts.take_to_give(blocks) {
            self.push_and_release()?;
            if !self.space.counts.take_to_give(blocks) {
                return Err(self.store.no_space("no block left for metadata"));
            }
        }
        let reserved = self.space.reserved(blocks);
        let tx = self.begin_promised(cost.meta_blocks)?;
        reserved.hand_over();
        Ok(tx)
    }

    /// Opens a transaction for work whose blocks were reserved before (write-back). It never fails for lack of space.
    /// The caller has passed the gate of a frozen volume, or only commits.
    #[inline]
    pub(crate) fn begin_promised(&self, reserved: u32) -> Result<Transaction<'_>> {
        let _span = lockmeter::span!("transaction start");
        self.store.check_writable()?;
        self.throttle()?;
        Ok(Transaction {
            log: &self.log,
            reserved,
        })
    }

    /// Like [`Committer::begin_promised`], for callers with locks held: returns `None` if the caller would have to wait
    /// for a push.
    pub(crate) fn begin_at_once(&self, reserved: u32) -> Result<Option<Transaction<'_>>> {
        self.store.check_writable()?;
        if self.must_push(self.log.context()) {
            return Ok(None);
        }
        Ok(Some(Transaction {
            log: &self.log,
            reserved,
        }))
    }
}

/// Maximum of rounds in which a caller loses the released blocks or numbers to other callers.
pub(super) const MOST_ROUNDS: u32 = 1000;

/// Result of one round of taking blocks or numbers that pushes release.
pub(super) enum Round<T> {
    Taken(T),
    /// Something was released, but other callers on the fast path took it. They may have freed others since.
    Lost,
    /// Nothing was released.
    Nothing,
}

/// Repeats a round while other callers take the released blocks or numbers, at most [`MOST_ROUNDS`] times.
pub(super) fn take_in_rounds<T>(mut round: impl FnMut() -> Result<Round<T>>) -> Result<Option<T>> {
    for _ in 0..MOST_ROUNDS {
        match round()? {
            Round::Taken(taken) => return Ok(Some(taken)),
            Round::Lost => {}
            Round::Nothing => break,
        }
    }
    Ok(None)
}

impl Committer {
    /// Takes blocks out of the free count; pushes if unused reservations or blocks freed in contexts that are not durable
    /// are in the way, as long as pushes return any.
    #[inline]
    pub(crate) fn take_space(&self, who: &Credentials, blocks: u64) -> Result<bool> {
        if self.space.counts.take(who, blocks) {
            Ok(true)
        } else {
            self.take_scarce(who, blocks)
        }
    }

    /// Like [`take_space`](Self::take_space), on the slow path where too few blocks seem to be left.
    #[cold]
    #[inline(never)]
    fn take_scarce(&self, who: &Credentials, blocks: u64) -> Result<bool> {
        let counts = &self.space.counts;
        let take = || counts.take(who, blocks);
        let taken = take_in_rounds(|| {
            // Write-back writes data to the device, which a closing gate waits for. Waiting for the gate comes before
            // the locks below: a thread that has passed the gate may need them.
            let _pass = self.store.gate.enter();
            // Only one caller at a time may be here. Another caller that could take the returned blocks during the push
            // queues here and waits.
            let _short = self.short_of_space.lock();
            let _no_trim = self.space.trimming.lock();
            // Read before the attempt below, so that what pushes of other threads return after it counts.
            let (returned, released) = (counts.returned(), counts.released());
            if take() || self.discard_aside() && take() {
                return Ok(Round::Taken(()));
            }
            self.push_and_release()?;
            schedule::reached(Point::Freed);
            if take() || self.discard_aside() && take() {
                return Ok(Round::Taken(()));
            }
            if self.holds_promises() {
                self.write_back_promised()?;
                self.push_and_release()?;
            }
            if take() {
                return Ok(Round::Taken(()));
            }
            // Released blocks count if they were enough: what only repays the reserve is never for this caller.
            let enough = counts.released().wrapping_sub(released) >= blocks;
            Ok(if enough || counts.returned() != returned {
                Round::Lost
            } else {
                Round::Nothing
            })
        });
        Ok(taken?.is_some())
    }

    /// Takes the space of data: a block for each hole, and the blocks that the mapping may need. Preallocated data
    /// can be written on a full volume too: their mapping rarely needs a block, and may take it from the withheld
    /// ones.
    pub(crate) fn take_for_data(
        &self,
        who: &Credentials,
        in_holes: u64,
        for_map: u32,
    ) -> Result<bool> {
        let for_map = u64::from(for_map);
        if in_holes == 0
            && (for_map == 0
                || self.space.counts.take(who, for_map)
                || self.space.counts.take_to_give(for_map))
        {
            return Ok(true);
        }
        self.take_space(who, in_holes + for_map)
    }
}

impl Committer {
    /// Takes a number for a new inode. Numbers freed by contexts that are not yet durable are released by a push,
    /// during which the caller must hold no lock.
    pub(crate) fn take_number(
        &self,
        parent: InodeNr,
        wanted: InodePurpose,
    ) -> Result<NewNumber<'_>> {
        let take = || match self.space.take_number(parent, wanted) {
            Err(Error::NoSpace(_)) => Ok(None),
            taken => taken.map(Some),
        };
        let taken = take_in_rounds(|| {
            // Read before the attempt, so that what pushes of other threads release after it counts.
            let released = self.space.inodes.released();
            if let Some(number) = take()? {
                return Ok(Round::Taken(number));
            }
            self.push_and_release()?;
            schedule::reached(Point::Freed);
            Ok(match take()? {
                Some(number) => Round::Taken(number),
                None if self.space.inodes.released() != released => Round::Lost,
                None => Round::Nothing,
            })
        });
        taken?.ok_or_else(|| self.store.no_space("no free inode"))
    }

    /// Returns true if a freed number is not reused for a while, which is so without a journal [I3].
    pub(super) fn rests_inode_numbers(&self) -> bool {
        !self.store.geometry.features.has_journal()
    }
}

impl Committer {
    fn discard_aside(&self) -> bool {
        self.holders
            .get()
            .is_some_and(|above| above.discard_aside())
    }

    fn holds_promises(&self) -> bool {
        self.holders
            .get()
            .is_some_and(|above| above.holds_promises())
    }

    fn write_back_promised(&self) -> Result<()> {
        self.holders
            .get()
            .map_or(Ok(()), |above| above.write_back_promised())
    }
}
