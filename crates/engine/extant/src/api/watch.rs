//! Watching a directory, a file or a volume.

use crate::incore::inode::Inode;
use crate::volume::caller::Caller;
use crate::watch::watchers::{Events, WatchEvent};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Events of one directory, file or volume, from its making on, in their order for each name and inode. For a
/// directory: names made, removed and moved in it, and its own attributes; for a file: its data, its attributes, the
/// removal of its names. Dropping it ends it. It does not keep the volume open.
///
/// ```
/// # fn main() -> Result<(), extant::Error> {
/// # let volume = extant::doc_volume();
/// use extant::WatchEvent;
/// volume.create_dir("/in")?;
/// let watch = volume.watch("/in")?;
/// volume.create_new_file("/elsewhere")?;
/// volume.write("/in/new", b"data")?;
/// volume.close()?;
/// let events: Vec<_> = watch.collect();
/// assert!(matches!(&events[0], WatchEvent::Created { name, .. } if name == b"new"));
/// assert_eq!(events.last(), Some(&WatchEvent::Unmounted));
/// # Ok(())
/// # }
/// ```
pub struct Watch {
    caller: Arc<Caller>,
    /// `None` for the volume.
    inode: Option<Arc<Inode>>,
    events: Arc<Events>,
    ended: bool,
}

impl Watch {
    pub(crate) fn new(caller: Caller, inode: Option<Arc<Inode>>) -> Self {
        Self {
            events: caller.any_engine().watch.watch(inode.as_deref()),
            caller: Arc::new(caller),
            inode,
            ended: false,
        }
    }

    /// Returns the next event, if one is pending.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let watch = volume.watch_volume();
    /// assert_eq!(watch.try_next(), None);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn try_next(&self) -> Option<WatchEvent> {
        self.events.next(Some(Instant::now()))
    }

    /// Returns the next event, or `None` after the timeout.
    ///
    /// ```
    /// # let volume = extant::doc_volume();
    /// let watch = volume.watch_volume();
    /// volume.create_new_file("/file")?;
    /// assert!(watch.next_within(std::time::Duration::from_secs(1)).is_some());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn next_within(&self, timeout: Duration) -> Option<WatchEvent> {
        self.events.next(Instant::now().checked_add(timeout))
    }
}

/// Waits for each event; ends behind [`WatchEvent::Unmounted`].
impl Iterator for Watch {
    type Item = WatchEvent;

    fn next(&mut self) -> Option<WatchEvent> {
        if self.ended {
            return None;
        }
        let event = self.events.next(None);
        self.ended = event == Some(WatchEvent::Unmounted);
        event
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let inode = self.inode.as_deref();
        self.caller.any_engine().watch.unwatch(inode, &self.events);
    }
}
