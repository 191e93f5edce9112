//! The thread of an open volume that commits on request and by a timer, and keeps memory bounded.

use crate::base::error::{Error, Result};
use crate::volume::engine::Engine;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Starts it; it ends with the engine.
pub(super) fn spawn(engine: &Arc<Engine>) -> Result<JoinHandle<()>> {
    let weak = Arc::downgrade(engine);
    let interval = engine.store.settings.commit_interval;
    std::thread::Builder::new()
        .name("extant-log".into())
        .spawn(move || background(&weak, interval))
        .map_err(|source| Error::Io {
            context: "start the log thread".into(),
            source,
        })
}

/// Commits when asked, and on a timer; keeps memory bounded.
fn background(engine: &Weak<Engine>, interval: Duration) {
    let mut last = Instant::now();
    let mut pushes = 0;
    loop {
        let Some(engine) = engine.upgrade() else {
            return;
        };
        let Some(asked) = engine.log.wakeup.wait(interval.min(Duration::from_secs(1))) else {
            return;
        };
        let timed = last.elapsed() >= interval;
        // `None` if the volume is frozen.
        let pass = engine.store.gate.try_enter();
        let done = if pass.is_none() {
            Ok(())
        } else if timed {
            last = Instant::now();
            // While the volume is idle, keep no memory for the next burst.
            let before = std::mem::replace(&mut pushes, engine.log.pushes.load(Ordering::Relaxed));
            if before == pushes {
                engine.log.spare.release();
                extant_formatter::block_memory::release();
            }
            engine.data.sync_by_timer()
        } else if asked {
            engine.commit.push_all()
        } else {
            Ok(())
        };
        if let Err(e) = done {
            tracing::error!(error = %e, "background commit");
            if engine.store.check_running().is_err() {
                return;
            }
        }
        drop(pass);
        engine.lifecycle.shrink_inodes();
    }
}
