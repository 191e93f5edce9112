//! Live counters of a mount.

use crate::counters::RequestCount;
use extant::{SearchCounts, Volume};
use serde::{Deserialize, Serialize};

/// Live counters of a mount.
///
/// ```
/// let status = extant_fuse::control::Status { image: "disk.img".into(), ..Default::default() };
/// assert!(status.to_prometheus().contains("extant_nodes_known{image=\"disk.img\"} 0"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Name of the image.
    pub image: String,
    /// Process ID of the server.
    pub process: u32,
    /// Transport of requests: "uring" or "classic".
    pub transport: String,
    /// Why the mount cannot be written, if so.
    pub read_only: Option<String>,
    /// Whether changes are frozen.
    pub frozen: bool,
    /// Requests that failed because the image is broken or its device failed.
    pub troubles: u64,
    /// The message of the last such error.
    pub last_trouble: Option<String>,
    /// Seconds since the mount.
    pub uptime_seconds: f64,
    /// Inodes that the kernel knows.
    pub nodes_known: u64,
    /// Requests by kind.
    pub requests: Vec<RequestCount>,
    /// Memory in use.
    pub memory: MemoryStatus,
    /// Counts of the log.
    pub log: LogStatus,
    /// Free and total space.
    pub space: SpaceStatus,
    /// Searches for blocks.
    pub search: SearchStatus,
    /// Pushes by the class of their time, as [`extant::PushTimes`] counts them.
    pub push_times: Vec<u64>,
    /// The stages of pushes, in their order.
    pub push_stages: Vec<StageStatus>,
    /// Counts of each slot of the server.
    pub slots: Vec<SlotStatus>,
    /// Counts of the lock meter, if it is on.
    pub locks: Vec<LockStatus>,
    /// Whether the lock meter is on.
    pub locks_metered: bool,
    /// Whether the function profile is on.
    pub profiled: bool,
}

/// Memory use of a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryStatus {
    /// Bytes of file data.
    pub data_bytes: u64,
    /// Largest size of the cache in bytes.
    pub data_limit: u64,
    /// Dirty bytes in the cache.
    pub dirty_bytes: u64,
    /// Bytes of metadata blocks.
    pub metadata_bytes: u64,
    /// Inodes in core.
    pub inodes: u64,
}

/// Counts of a mount's log since it was mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogStatus {
    /// Transactions that were pushed.
    pub commits: u64,
    /// Pushes.
    pub pushes: u64,
    /// Bytes written to the journal.
    pub bytes: u64,
    /// Blocks of the log.
    pub blocks: u64,
    /// Blocks of the log that still contain images not written home.
    pub used_blocks: u64,
}

/// Time that pushes spent in one of their stages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageStatus {
    /// The stage, as [`extant::PushStage::name`] has it.
    pub name: String,
    /// Pushes by the class of their time in it.
    pub times: Vec<u64>,
    /// Nanoseconds of all pushes in it.
    pub total_ns: u64,
}

/// Work of a slot of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlotStatus {
    /// Number of threads that use the slot.
    pub threads: u64,
    /// Number of requests begun in the slot.
    pub requests: u64,
    /// Transactions in its lists of the log.
    pub transactions: u64,
    /// Log items in these transactions.
    pub items: u64,
}

/// Counts of a class of locks while the meter was on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LockStatus {
    /// Its name.
    pub name: String,
    /// Number of acquisitions.
    pub acquisitions: u64,
    /// Number of acquisitions that had to wait.
    pub contentions: u64,
    /// Nanoseconds waited.
    pub wait_ns: u64,
}

/// Searches for blocks since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SearchStatus {
    /// Number of groups considered.
    pub considered: u64,
    /// Number of groups whose lock was busy: they were skipped, or waited for if no other group was left.
    pub busy: u64,
    /// Number of groups that were locked and had no suitable run.
    pub failed: u64,
    /// Runs found at the goal, then by each of the five criteria, as named in `extant::SearchCounts::SEARCH_STEPS`.
    pub found: [u64; 6],
}

/// Space of a mount, in bytes and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpaceStatus {
    /// Total bytes.
    pub bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Total inodes.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
}

/// Returns the lock meter's counts of this process, by class; empty while the meter is off.
fn locks() -> Vec<LockStatus> {
    if !lockmeter::is_on() {
        return Vec::new();
    }
    let classes = lockmeter::Snapshot::take().classes;
    let classes = classes.into_iter().map(|class| LockStatus {
        name: class.name,
        acquisitions: class.total.acquisitions,
        contentions: class.total.contentions,
        wait_ns: class.total.wait_ns,
    });
    classes.collect()
}

impl Status {
    /// Returns the status of a volume, without the requests of a mount.
    ///
    /// ```
    /// let volume = extant::doc_volume();
    /// let status = extant_fuse::control::Status::of(&volume)?;
    /// assert!(status.space.free_bytes < status.space.bytes);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn of(volume: &Volume) -> extant::Result<Self> {
        let (log, state) = (volume.statistics(), volume.log_state());
        let memory = volume.memory();
        let space = volume.statfs()?;
        let bytes = |blocks: u64| blocks.saturating_mul(space.block_size.into());
        let stages = state.stages.iter().map(|stage| StageStatus {
            name: stage.stage.name().into(),
            times: stage.times.counts().to_vec(),
            total_ns: u64::try_from(stage.total.as_nanos()).unwrap_or(u64::MAX),
        });
        let slots = state.slots.iter().map(|slot| SlotStatus {
            threads: slot.threads,
            transactions: slot.transactions,
            items: slot.items,
            requests: 0,
        });
        Ok(Self {
            process: std::process::id(),
            read_only: volume.read_only(),
            memory: MemoryStatus {
                data_bytes: memory.data,
                data_limit: volume.cache_limit(),
                dirty_bytes: memory.dirty,
                metadata_bytes: memory.metadata,
                inodes: memory.inodes,
            },
            log: LogStatus {
                commits: log.commits,
                pushes: log.pushes,
                bytes: log.log_bytes,
                blocks: state.blocks,
                used_blocks: state.used_blocks,
            },
            space: SpaceStatus {
                bytes: bytes(space.blocks),
                free_bytes: bytes(space.free_blocks),
                inodes: space.inodes,
                free_inodes: space.free_inodes,
            },
            search: SearchStatus {
                considered: log.search.considered,
                busy: log.search.busy,
                failed: log.search.failed,
                found: log.search.found,
            },
            push_times: state.push_times.counts().to_vec(),
            push_stages: stages.collect(),
            slots: slots.collect(),
            locks: locks(),
            locks_metered: lockmeter::is_on(),
            profiled: lockmeter::profile::is_on(),
            ..Self::default()
        })
    }

    /// Returns the counters as Prometheus text: counters end in `_total`, times are seconds.
    pub fn to_prometheus(&self) -> String {
        let mut out = Exposition {
            image: escape(&self.image),
            text: String::new(),
        };
        self.gauges(&mut out);
        self.counters(&mut out);
        self.request_counters(&mut out);
        out.text
    }

    /// Adds values that go up and down.
    fn gauges(&self, out: &mut Exposition) {
        let m = &self.memory;
        let s = &self.space;
        let gauges: [(&str, &str, f64); 11] = [
            (
                "uptime_seconds",
                "Time since the mount",
                self.uptime_seconds,
            ),
            (
                "nodes_known",
                "Inodes the kernel knows",
                self.nodes_known as f64,
            ),
            (
                "frozen",
                "1 while changes wait for a thaw",
                f64::from(u8::from(self.frozen)),
            ),
            ("data_bytes", "File data in memory", m.data_bytes as f64),
            (
                "dirty_bytes",
                "File data not written back",
                m.dirty_bytes as f64,
            ),
            (
                "metadata_bytes",
                "Metadata blocks in memory",
                m.metadata_bytes as f64,
            ),
            ("inodes_in_core", "Inodes in memory", m.inodes as f64),
            ("size_bytes", "Space of the volume", s.bytes as f64),
            (
                "free_bytes",
                "Free space of the volume",
                s.free_bytes as f64,
            ),
            ("inodes", "Inodes of the volume", s.inodes as f64),
            (
                "free_inodes",
                "Free inodes of the volume",
                s.free_inodes as f64,
            ),
        ];
        for (name, help, value) in gauges {
            out.head(name, help, "gauge");
            out.sample(name, "", value);
        }
    }

    /// Adds counters of the whole mount.
    fn counters(&self, out: &mut Exposition) {
        let counters = [
            ("commits_total", "Transactions pushed", self.log.commits),
            ("pushes_total", "Pushes of the log", self.log.pushes),
            (
                "log_bytes_total",
                "Bytes written to the journal",
                self.log.bytes,
            ),
            (
                "groups_considered_total",
                "Groups considered in searches for blocks",
                self.search.considered,
            ),
            (
                "groups_busy_total",
                "Groups whose lock was busy",
                self.search.busy,
            ),
            (
                "groups_failed_total",
                "Groups locked in vain",
                self.search.failed,
            ),
            (
                "troubles_total",
                "Requests that found the image or its device broken",
                self.troubles,
            ),
        ];
        for (name, help, value) in counters {
            out.head(name, help, "counter");
            out.sample(name, "", value as f64);
        }
        let name = "search_found_total";
        out.head(
            name,
            "Runs of blocks found, by the step of the search",
            "counter",
        );
        for (step, found) in SearchCounts::SEARCH_STEPS.iter().zip(self.search.found) {
            out.sample(name, step, found as f64);
        }
        let name = "push_seconds_total";
        out.head(name, "Time of pushes by stage", "counter");
        for stage in &self.push_stages {
            out.sample(name, &stage.name, stage.total_ns as f64 / 1e9);
        }
    }

    /// Adds counters by kind of request.
    fn request_counters(&self, out: &mut Exposition) {
        type Of = fn(&RequestCount) -> f64;
        let by_kind: [(&str, &str, Of); 4] = [
            ("requests_total", "Requests answered", |r| r.requests as f64),
            (
                "request_failures_total",
                "Requests answered with an error",
                |r| r.failures as f64,
            ),
            ("request_seconds_total", "Time spent on requests", |r| {
                r.total_us / 1e6
            }),
            ("request_bytes_total", "File data of requests", |r| {
                r.bytes as f64
            }),
        ];
        for (name, help, of) in by_kind {
            out.head(name, help, "counter");
            for line in &self.requests {
                out.sample(name, &line.kind, of(line));
            }
        }
    }
}

/// Text in the exposition format of Prometheus.
struct Exposition {
    image: String,
    text: String,
}

impl Exposition {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        self.text += &format!("# HELP extant_{name} {help}\n# TYPE extant_{name} {kind}\n");
    }

    fn sample(&mut self, name: &str, kind: &str, value: f64) {
        let kind = match kind {
            "" => String::new(),
            kind => format!(",kind=\"{kind}\""),
        };
        let Self { image, text } = self;
        *text += &format!("extant_{name}{{image=\"{image}\"{kind}}} {value}\n");
    }
}

fn escape(label: &str) -> String {
    label
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
