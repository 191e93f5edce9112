//! The source of the figures: a mount, or a demonstration in this process. A thread of its own asks, so that a slow
//! server does not delay the keys.

use super::demo::Demo;
use crate::interrupt;
use crate::mounted::Mounted;
use anyhow::{Context, Result, anyhow};
use extant_fuse::control::{Client, Command, Status};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The asked server.
pub enum Source {
    /// A mount's server, and the directory for messages.
    Mount(Client, String),
    /// Threads of this process.
    Demo(Box<Demo>),
}

impl Source {
    /// The server of what is mounted on a directory.
    pub fn mount(dir: &Path) -> Result<Self> {
        let mounted = Mounted::at(dir)?;
        Ok(Self::Mount(mounted.client()?, mounted.name()))
    }

    /// Threads that begin to work.
    pub fn demo() -> Result<Self> {
        Ok(Self::Demo(Box::new(Demo::start()?)))
    }

    /// The counters now.
    pub fn status(&mut self) -> Result<Status> {
        match self {
            Self::Mount(client, name) => {
                let status = client.status();
                status.map_err(|e| match e.kind() {
                    std::io::ErrorKind::Other => anyhow!("{name}: {e}"),
                    // The words of a server that still answers.
                    _ => anyhow!("{name}: the mount has ended"),
                })
            }
            Self::Demo(demo) => demo.status(),
        }
    }

    /// Switches the lock meter.
    pub fn meter(&mut self, on: bool) -> Result<()> {
        match self {
            Self::Mount(client, name) => {
                let done = client.ask(Command::MeterLocks(on)).map(drop);
                done.with_context(|| name.clone())
            }
            Self::Demo(_) => {
                lockmeter::set_on(on);
                Ok(())
            }
        }
    }
}

/// Counters, and when they were asked for.
#[derive(Clone)]
pub struct Sample {
    pub at: Instant,
    pub status: Status,
}

/// The samples of the asking thread.
pub struct Samples {
    samples: Receiver<Result<Sample>>,
    orders: Sender<bool>,
    asking: JoinHandle<()>,
}

/// How long the user's signal may stay unseen.
const GLANCE: Duration = Duration::from_millis(100);
/// How long the end may take if the server does not answer.
const PATIENCE: Duration = Duration::from_secs(2);

impl Samples {
    /// Asks at once, and again after every interval.
    pub fn start(mut source: Source, interval: Duration) -> Result<Self> {
        let (samples_in, samples) = channel();
        let (orders, orders_out) = channel();
        let ask = move || {
            let mut due = Instant::now();
            loop {
                let sample = source.status().map(|status| Sample {
                    at: Instant::now(),
                    status,
                });
                let failed = sample.is_err();
                if samples_in.send(sample).is_err() || failed {
                    // Orders from before the end are carried out.
                    orders_out.try_iter().for_each(|on| drop(source.meter(on)));
                    return;
                }
                due = (due + interval).max(Instant::now());
                loop {
                    match orders_out.recv_timeout(due.saturating_duration_since(Instant::now())) {
                        // Whether it worked, the next status says.
                        Ok(on) => drop(source.meter(on)),
                        Err(RecvTimeoutError::Timeout) => break,
                        Err(RecvTimeoutError::Disconnected) => return,
                    }
                }
            }
        };
        let asking = thread::Builder::new().name("status".into()).spawn(ask);
        Ok(Self {
            samples,
            orders,
            asking: asking.context("a thread that asks")?,
        })
    }

    /// The next sample, however long it takes.
    ///
    /// # Errors
    /// The server is gone, or the user wants to stop.
    pub fn next(&self) -> Result<Sample> {
        loop {
            interrupt::check()?;
            if let Some(sample) = self.within(GLANCE)? {
                return Ok(sample);
            }
        }
    }

    /// The next sample if there is one by then.
    pub fn within(&self, time: Duration) -> Result<Option<Sample>> {
        match self.samples.recv_timeout(time) {
            Ok(sample) => sample.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(anyhow!("the thread that asks has ended")),
        }
    }

    /// Has the lock meter switched.
    pub fn meter(&self, on: bool) {
        // A thread that has ended has said why.
        let _ = self.orders.send(on);
    }

    /// Ends the thread; one that waits for a server that does not answer ends with the process.
    pub fn end(self) {
        let Self {
            samples,
            orders,
            asking,
        } = self;
        drop((orders, samples));
        let until = Instant::now() + PATIENCE;
        while !asking.is_finished() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        if asking.is_finished() {
            // It has no result, and a panic has been reported.
            let _ = asking.join();
        }
    }
}
