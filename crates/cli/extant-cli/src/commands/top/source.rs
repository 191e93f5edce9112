//! The source of the counters: a mount, or a demonstration in this process. A separate thread queries the server, so
//! that a slow server does not delay the keys.

use super::demo::Demo;
use anyhow::{Context, Result, anyhow};
use extant_cli_core::mounts::mounted::Mounted;
use extant_fuse::control::{Client, Command, Status};
use extant_terminal::interrupt;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The queried server.
pub enum Source {
    /// A mount's server, and the directory for messages.
    Mount(Client, String),
    /// Threads of this process.
    Demo(Box<Demo>),
}

impl Source {
    /// Connects to the server of the mount on a directory.
    pub fn mount(dir: &Path) -> Result<Self> {
        let mounted = Mounted::at(dir)?;
        Ok(Self::Mount(mounted.client()?, mounted.name()))
    }

    /// Starts the threads of the demonstration.
    pub fn demo() -> Result<Self> {
        Ok(Self::Demo(Box::new(Demo::start()?)))
    }

    /// Returns the present counters.
    pub fn status(&mut self) -> Result<Status> {
        match self {
            Self::Mount(client, name) => {
                let status = client.status();
                status.map_err(|e| match e.kind() {
                    std::io::ErrorKind::Other => anyhow!("{name}: {e}"),
                    // Any other error means that the server is gone.
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

/// Counters, and the time of the query.
#[derive(Clone)]
pub struct Sample {
    pub at: Instant,
    pub status: Status,
}

/// The samples of the querying thread.
pub struct Samples {
    samples: Receiver<Result<Sample>>,
    orders: Sender<bool>,
    asking: JoinHandle<()>,
}

/// Longest delay until a signal of the user is noticed.
const GLANCE: Duration = Duration::from_millis(100);
/// Time limit for the end if the server does not answer.
const PATIENCE: Duration = Duration::from_secs(2);

impl Samples {
    /// Takes a sample at once, and another after every interval.
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
                    // Execute the orders that came before the end.
                    orders_out.try_iter().for_each(|on| drop(source.meter(on)));
                    return;
                }
                due = (due + interval).max(Instant::now());
                loop {
                    match orders_out.recv_timeout(due.saturating_duration_since(Instant::now())) {
                        // The next status reports whether it worked.
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

    /// Returns the next sample, without a time limit.
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

    /// Returns the next sample if it arrives within `time`.
    pub fn within(&self, time: Duration) -> Result<Option<Sample>> {
        match self.samples.recv_timeout(time) {
            Ok(sample) => sample.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(anyhow!("the thread that asks has ended")),
        }
    }

    /// Orders the thread to switch the lock meter.
    pub fn meter(&self, on: bool) {
        // A thread that has ended has reported why.
        let _ = self.orders.send(on);
    }

    /// Ends the thread; if it waits for a server that does not answer, it ends with the process.
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
            // The thread has no result, and a panic has been reported.
            let _ = asking.join();
        }
    }
}
