//! The engine of one open volume: one of each layer, wired.

use crate::base::locks::{self, Mutex};
use crate::commit::{BlockHolders, Committer, PushObserver};
use crate::data::Data;
use crate::inodes::{Evictor, Inodes};
use crate::lifecycle::Lifecycle;
use crate::log::Log;
use crate::names::Names;
use crate::space::Space;
use crate::store::Store;
use crate::volume::caller::{EngineShare, Hold};
use crate::watch::watchers::Watchers;
use crossbeam_utils::CachePadded;
use percpu::PerSlot;
use std::sync::{Arc, Weak};

/// Everything that belongs to one open volume. Aligned so that the counts of its references, which every new handle
/// writes, stand on a line that operations do not read.
#[repr(align(128))]
pub struct Engine {
    pub(crate) store: Arc<Store>,
    pub(crate) space: Arc<Space>,
    pub(crate) log: Arc<Log>,
    pub(crate) commit: Arc<Committer>,
    pub(crate) watch: Arc<Watchers>,
    pub(crate) inodes: Arc<Inodes>,
    pub(crate) data: Arc<Data>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) names: Arc<Names>,
    /// The reference by which the nodes made in a slot hold the engine; none once the volume is closed.
    pub(crate) node_shares: PerSlot<Mutex<Option<EngineShare>, locks::NodeShare>>,
    /// The reference by which the directory handles made in a slot hold the volume open, while there are any.
    pub(crate) holds: PerSlot<Mutex<Weak<CachePadded<Hold>>, locks::Hold>>,
}

impl Engine {
    /// Builds the layers above the commit layer, and wires the traits by which lower layers call them.
    pub(super) fn wire(commit: Arc<Committer>) -> Self {
        let watch = Arc::new(Watchers::new(Arc::clone(&commit.store)));
        let inodes = Arc::new(Inodes::new(Arc::clone(&commit), Arc::clone(&watch)));
        let data = Arc::new(Data::new(Arc::clone(&inodes)));
        let lifecycle = Arc::new(Lifecycle::new(Arc::clone(&data)));
        let names = Arc::new(Names::new(Arc::clone(&lifecycle)));
        let (holders, evictor, observer): (
            Weak<dyn BlockHolders>,
            Weak<dyn Evictor>,
            Weak<dyn PushObserver>,
        ) = (
            Arc::<Data>::downgrade(&data),
            Arc::<Lifecycle>::downgrade(&lifecycle),
            Arc::<Inodes>::downgrade(&inodes),
        );
        commit.holders.set(holders);
        commit.observer.set(observer);
        inodes.evictor.set(evictor);
        Self {
            store: Arc::clone(&commit.store),
            space: Arc::clone(&commit.space),
            log: Arc::clone(&commit.log),
            commit,
            watch,
            inodes,
            data,
            lifecycle,
            names,
            node_shares: PerSlot::default(),
            holds: PerSlot::default(),
        }
    }
}
