//! A Ceph cluster that `scripts/ceph-mini.sh` runs. `scripts/test-remote.sh` starts one, and names its directory in `EXTANT_CEPH`.

use std::path::PathBuf;
use std::process::{Command, Output};

/// A running cluster.
pub struct Ceph(PathBuf);

/// Returns the cluster of this run; without one, reports that the test is ignored.
#[track_caller]
pub fn running() -> Option<Ceph> {
    let dir = std::env::var_os("EXTANT_CEPH");
    if dir.is_none() {
        crate::told("no Ceph cluster: scripts/test-remote.sh starts one");
    }
    dir.map(|dir| Ceph(dir.into()))
}

impl Ceph {
    /// Returns the path of the configuration.
    ///
    /// # Panics
    /// The path is not UTF-8.
    pub fn conf(&self) -> String {
        let conf = self.0.join("ceph.conf");
        conf.to_str().expect("a path in UTF-8").to_owned()
    }

    /// Returns a name for an image of this process, with its pool.
    pub fn image_name(&self, name: &str) -> String {
        format!("rbd/{name}-{}", std::process::id())
    }

    /// Runs a program of Ceph. Its arguments are separated by spaces.
    ///
    /// # Panics
    /// The program cannot be started.
    pub fn run(&self, line: &str) -> Output {
        let mut words = line.split(' ');
        let program = words.next().unwrap_or_default();
        let mut command = Command::new(program);
        command.args(words).env("CEPH_CONF", self.conf());
        command.output().unwrap_or_else(|e| panic!("{line}: {e}"))
    }

    /// Runs a program of Ceph, which must succeed, and returns its output.
    ///
    /// # Panics
    /// The program fails.
    pub fn ok(&self, line: &str) -> String {
        let out = self.run(line);
        assert!(out.status.success(), "{line}: {out:?}");
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// Kills an OSD and starts it again; returns when the cluster has all of them.
    ///
    /// # Panics
    /// The OSD does not start.
    pub fn restart_osd(&self, number: u32) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../scripts/ceph-mini.sh");
        let run = |command| {
            let done = Command::new(script)
                .arg(command)
                .arg(&self.0)
                .arg(number.to_string())
                .status();
            assert!(done.is_ok_and(|status| status.success()), "{command}");
        };
        run("kill");
        // The monitor reports the loss at once instead of after a time without heartbeats.
        self.ok(&format!("ceph osd down {number}"));
        run("osd");
        while !self.ok("ceph osd stat").contains("3 up") {}
    }
}
