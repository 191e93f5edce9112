//! Servers that did not answer in time, so that a command that looks at its image several times waits only once.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Error of a server that did not answer.
struct SilentServer {
    address: PathBuf,
    error: String,
    since: Instant,
    /// Length of the wait that ended with the error.
    waited: Duration,
}

/// List of these servers.
pub(super) struct SilentServers(Vec<SilentServer>);

impl SilentServers {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a server after a wait. After the same time the server is asked again.
    pub(super) fn add(&mut self, address: &Path, error: String, waited: Duration) {
        self.0.push(SilentServer {
            address: address.to_owned(),
            error,
            since: Instant::now(),
            waited,
        });
    }

    /// Returns the error of a server that need not be asked again yet.
    pub(super) fn error(&mut self, address: &Path) -> Option<&str> {
        self.0
            .retain(|server| server.since.elapsed() < server.waited);
        let known = self.0.iter().find(|server| server.address == address)?;
        Some(&known.error)
    }
}

#[test]
fn a_silent_server_is_asked_again_later() {
    let mut servers = SilentServers::new();
    let [long, short] = ["nbd://long", "nbd://short"].map(Path::new);
    servers.add(long, "no reply".into(), Duration::from_secs(600));
    servers.add(short, "no reply".into(), Duration::from_millis(1));
    std::thread::sleep(Duration::from_millis(2));
    assert_eq!(servers.error(long), Some("no reply"));
    assert_eq!(servers.error(short), None);
    assert_eq!(servers.error(Path::new("nbd://other")), None);
}
