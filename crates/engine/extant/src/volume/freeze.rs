//! Freezing a volume: everything is durable and at its place, and nothing is written until the thaw.

use crate::base::error::{Error, Result};
use crate::volume::engine::Engine;

impl Engine {
    /// Holds changes back and brings the device to the state of a volume that was closed. Open files without a name
    /// stay on the orphan list. Undone by [`Engine::thaw`].
    pub(crate) fn freeze(&self) -> Result<()> {
        self.store.check_running()?;
        if !self.store.gate.close() {
            return Err(Error::Busy("the volume is frozen"));
        }
        // This thread acts for all threads that wait.
        let _inside = self.store.gate.pass_on_behalf();
        let done = self.quiesce();
        if done.is_err() || self.store.check_running().is_err() {
            self.store.gate.open();
        }
        done.and_then(|()| self.store.check_running())
    }

    fn quiesce(&self) -> Result<()> {
        if self.store.health.read_only.is_none() {
            self.inodes.make_all_times_due();
            self.data
                .write_back_then(|| self.commit.push_and_release())?;
        }
        // The next push finds the gate shut.
        self.commit.rest(|| {
            self.store.gate.shut();
            self.store.gate.notify();
        })
    }

    /// Lets changes continue. The first push marks the volume as in use again.
    pub(crate) fn thaw(&self) {
        self.store.gate.open();
        if self.store.health.damage.count() > 0 {
            self.store.write_errors();
        }
    }
}
