//! The identity of handles, and their hold on the volume.

use crate::base::error::Result;
use crate::types::credentials::Credentials;
use crate::volume::engine::Engine;
use crate::volume::guard::Guard;
use crossbeam_utils::CachePadded;
use std::sync::Arc;

/// A handle's hold on a volume. Handles made in one slot share a hold, and are counted there.
pub(crate) struct Hold {
    pub(crate) engine: Arc<Engine>,
    /// Keeps the volume open.
    pub(crate) guard: Option<Arc<Guard>>,
}

impl Hold {
    /// Returns the hold of the calling thread's slot. The slot's own reference does not keep the volume open.
    pub(crate) fn of(engine: &Arc<Engine>, guard: &Arc<Guard>) -> Arc<CachePadded<Self>> {
        let mut place = engine.holds.local().lock();
        if let Some(hold) = place.upgrade() {
            return hold;
        }
        let hold = Arc::new(CachePadded::new(Self {
            engine: Arc::clone(engine),
            guard: Some(Arc::clone(guard)),
        }));
        *place = Arc::downgrade(&hold);
        hold
    }
}

/// The identity and volume of a handle. Every clone of a [`Dir`](super::dir::Dir) has a separate caller, and the files
/// opened through the clone count their use of it there. So two tasks share no counter.
pub(crate) struct Caller {
    /// Padded, so that the count of its uses, which every new handle writes, is not on a line that operations read.
    pub(crate) hold: Arc<CachePadded<Hold>>,
    pub(crate) who: Credentials,
}

impl Caller {
    /// Returns the volume, unless it has been closed.
    pub(crate) fn engine(&self) -> Result<&Engine> {
        let engine = self.any_engine();
        engine.store.check_here()?;
        Ok(engine)
    }

    /// Returns the volume, closed or not.
    pub(crate) fn any_engine(&self) -> &Arc<Engine> {
        &self.hold.engine
    }

    /// Returns the same volume under another identity, with a separate share.
    pub(crate) fn to(&self, who: Credentials) -> Arc<Self> {
        let hold = match &self.hold.guard {
            Some(guard) => Hold::of(&self.hold.engine, guard),
            None => Arc::clone(&self.hold),
        };
        Arc::new(Self { hold, who })
    }
}

/// A slot's reference to the engine. Nodes count their use of the volume here, so that two tasks that make nodes share
/// no counter. Padded, so that the count of its uses is not on a line that operations read.
pub(crate) type EngineShare = Arc<CachePadded<Arc<Engine>>>;

impl Engine {
    /// Returns the share of the calling thread's slot.
    pub(crate) fn share(self: &Arc<Self>) -> EngineShare {
        let mut place = self.node_shares.local().lock();
        if let Some(share) = &*place {
            return Arc::clone(share);
        }
        let share = Arc::new(CachePadded::new(Arc::clone(self)));
        // The engine holds the shares, which hold the engine, until the volume is closed. Afterwards it holds none.
        if self.store.check_here().is_ok() {
            *place = Some(Arc::clone(&share));
        }
        share
    }

    /// Drops all shares, because the volume is closed.
    pub(super) fn drop_shares(&self) {
        for place in self.node_shares.iter() {
            let old = place.lock().take();
            drop(old);
        }
    }
}
