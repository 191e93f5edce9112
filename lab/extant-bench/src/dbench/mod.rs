//! dbench: clients replay a loadfile, each in a separate directory. Operations that failed in the recording must fail
//! here too, and the others must succeed.

mod client;
mod load;

pub use load::{Load, Op};

use crate::latency::{Latencies, Summary};
use crate::runner::each_pinned;
use crate::stats::{Elapsed, Stopwatch, median};
use crate::target::{Target, empty, is_taken};
use anyhow::{Context, Result, ensure};
use client::Client;
use serde::Serialize;
use std::collections::BTreeMap;

/// Parameters of a run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Params {
    /// Number of clients, each with a thread.
    pub clients: usize,
    /// Number of counted rounds.
    pub rounds: usize,
}

/// Results of a round.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// Time of the whole load.
    pub run: Elapsed,
    /// Time of the sync after the load.
    pub sync: Elapsed,
    /// Bytes read and written.
    pub bytes: u64,
    /// Operations.
    pub ops: u64,
}

/// Medians of all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The target.
    pub target: String,
    /// Its shape.
    pub params: Params,
    /// Bytes read and written per second.
    pub bytes: f64,
    /// Bytes read and written per second, sync included.
    pub bytes_synced: f64,
    /// Operations per second.
    pub ops: f64,
    /// CPU time per operation in nanoseconds.
    pub cpu_ns: f64,
    /// Latencies of all rounds, by operation.
    pub latencies: BTreeMap<&'static str, Summary>,
    /// The reason why a peer failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Every round.
    pub rounds: Vec<Round>,
}

#[derive(Default)]
struct Runs {
    rounds: Vec<Round>,
    latencies: BTreeMap<&'static str, Latencies>,
    failed: Option<String>,
}

impl Report {
    fn of(target: &dyn Target, params: Params, runs: Runs) -> Self {
        let Runs {
            rounds,
            latencies,
            failed,
        } = runs;
        let med = |f: &dyn Fn(&Round) -> f64| median(&mut rounds.iter().map(f).collect::<Vec<_>>());
        let (bytes, ops) = (|r: &Round| r.bytes as f64, |r: &Round| r.ops as f64);
        Self {
            target: target.name(),
            params,
            bytes: med(&|r| bytes(r) / r.run.wall),
            bytes_synced: med(&|r| bytes(r) / (r.run.wall + r.sync.wall)),
            ops: med(&|r| ops(r) / r.run.wall),
            cpu_ns: med(&|r| r.run.cpu / ops(r).max(1.0) * 1e9),
            latencies: latencies.iter().map(|(n, l)| (*n, l.summary())).collect(),
            failed,
            rounds,
        }
    }
}

/// The result of one client.
#[derive(Default)]
struct ClientResult {
    bytes: u64,
    ops: u64,
    latencies: BTreeMap<&'static str, Latencies>,
}

/// The directory of the clients in the loadfile.
const CLIENTS: &str = "clients";

fn clear(target: &dyn Target, place: &str) -> Result<()> {
    let base = target.open_dir(place)?;
    empty(&*base)?;
    drop(base);
    target.remove_dir(place)?;
    target.sync()
}

fn play(
    target: &dyn Target,
    load: &Load,
    place: &str,
    clients: usize,
    between: &(dyn Fn() -> Result<()> + Sync),
) -> Result<(Round, Vec<ClientResult>)> {
    let base = target.open_dir(place)?;
    match base.make_dir(CLIENTS) {
        Err(e) if !is_taken(&e) => return Err(e),
        _ => target.sync()?,
    }
    let mut all: Vec<Client> = (1..=clients)
        .map(|number| Ok(Client::new(base.again()?, number)))
        .collect::<Result<_>>()?;
    let other = target.other_cpu();
    let (done, mut run) = each_pinned(&mut all, |client| {
        let mut done = ClientResult::default();
        client.replay(load, &mut done, between)?;
        Ok(done)
    })?;
    run.cpu += target.other_cpu() - other;
    drop(all);
    let watch = Stopwatch::start();
    target.sync()?;
    let round = Round {
        run,
        sync: watch.elapsed(),
        bytes: done.iter().map(|d| d.bytes).sum(),
        ops: done.iter().map(|d| d.ops).sum(),
    };
    Ok((round, done))
}

fn round(
    target: &dyn Target,
    load: &Load,
    clients: usize,
    between: &(dyn Fn() -> Result<()> + Sync),
) -> Result<(Round, Vec<ClientResult>)> {
    let place = format!("dbench.{}", std::process::id());
    drop(target.make_dir(&place)?);
    let played = play(target, load, &place, clients, between);
    let cleared = clear(target, &place);
    let played = played?;
    cleared?;
    Ok(played)
}

/// Runs all targets alternately, after a warm-up round. `between` is called regularly; if it fails, the benchmark
/// ends. If the first target fails, the benchmark ends, too. Another target that fails is skipped from then on, with
/// the reason in its report.
pub fn run(
    targets: &[&dyn Target],
    load: &Load,
    params: Params,
    between: &(dyn Fn() -> Result<()> + Sync),
) -> Result<Vec<Report>> {
    ensure!(
        params.clients > 0 && params.rounds > 0,
        "clients and rounds begin at 1"
    );
    let mut runs: Vec<Runs> = targets.iter().map(|_| Runs::default()).collect();
    for number in 0..=params.rounds {
        for (i, (target, runs)) in targets.iter().zip(&mut runs).enumerate() {
            between()?;
            if runs.failed.is_some() {
                continue;
            }
            match round(*target, load, params.clients, between) {
                Ok(_) if number == 0 => {}
                Ok((round, done)) => {
                    runs.rounds.push(round);
                    for (name, latencies) in done.iter().flat_map(|d| &d.latencies) {
                        runs.latencies.entry(name).or_default().merge(latencies);
                    }
                }
                Err(e) if i == 0 => return Err(e).context(format!("dbench on {}", target.name())),
                Err(e) => {
                    between()?;
                    *runs = Runs {
                        failed: Some(format!("{e:#}")),
                        ..Runs::default()
                    };
                }
            }
        }
    }
    Ok(targets
        .iter()
        .zip(runs)
        .map(|(target, runs)| Report::of(*target, params, runs))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{LibTarget, PathTarget};

    const LOAD: &str = r#"
        Deltree "\clients\client1" NT_STATUS_OK
        Mkdir "\clients" NT_STATUS_OK
        NTCreateX "\clients\client1" 0x1 0x2 16385 NT_STATUS_OK
        Close 16385 NT_STATUS_OK
        0.5 NTCreateX "\clients\client1\~dmtmp" 0x1 0x2 9937 NT_STATUS_OK
        Close 9937 NT_STATUS_OK
        NTCreateX "\clients\client1\mixfile" 0x40 0x1 9935 NT_STATUS_OBJECT_NAME_NOT_FOUND
        QUERY_PATH_INFORMATION "\clients\client1\none" 1004 NT_STATUS_OBJECT_NAME_NOT_FOUND
        FIND_FIRST "\clients\client1\FILLER.*" 260 1366 0 NT_STATUS_NO_SUCH_FILE
        NTCreateX "\clients\client1\filler.000" 0x40 0x2 9938 NT_STATUS_OK
        QUERY_FS_INFORMATION 1 NT_STATUS_OK
        WriteX 9938 65534 1 1 NT_STATUS_OK
        QUERY_FILE_INFORMATION 9938 258 NT_STATUS_OK
        WriteX 9938 0 65536 65536 NT_STATUS_OK
        Flush 9938 NT_STATUS_OK
        ReadX 9938 4096 4096 4096 NT_STATUS_OK
        LockX 9938 10 1 NT_STATUS_OK
        UnlockX 9938 10 1 NT_STATUS_OK
        SET_FILE_INFORMATION 9938 1004 NT_STATUS_OK
        Close 9938 NT_STATUS_OK
        FIND_FIRST "\clients\client1\FILLER.*" 260 1366 1 NT_STATUS_OK
        Rename "\clients\client1\filler.000" "\clients\client1\~dmtmp\moved" NT_STATUS_OK
        NTCreateX "\clients\client1\~dmtmp\MOVED" 0x40 0x1 9939 NT_STATUS_OK
        Close 9939 NT_STATUS_OK
        Unlink "\clients\client1\~dmtmp\moved" 0x6 NT_STATUS_OK
        NTCreateX "\clients\client1\left" 0x40 0x2 9940 NT_STATUS_OK
        Deltree "\clients\client1" NT_STATUS_OK
    "#;

    #[test]
    fn a_load_is_replayed_over_a_volume_and_a_path() {
        let load = Load::parse(LOAD.as_bytes()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = PathTarget::new(dir.path());
        let lib = LibTarget::new(crate::workload::tests::volume(64));
        let params = Params {
            clients: 3,
            rounds: 2,
        };
        let reports = run(&[&lib, &path], &load, params, &|| Ok(())).unwrap();
        for report in &reports {
            assert_eq!(report.failed, None);
            assert_eq!(report.rounds.len(), 2);
            let round = &report.rounds[0];
            assert_eq!(round.ops, 3 * 27);
            assert_eq!(round.bytes, 3 * (1 + 65536 + 4096));
            assert_eq!(report.latencies["WriteX"].count, 2 * 3 * 2);
        }
        assert_eq!(dir.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn what_does_not_go_as_recorded_is_an_error() {
        let lib = LibTarget::new(crate::workload::tests::volume(64));
        let params = Params {
            clients: 1,
            rounds: 1,
        };
        for (line, why) in [
            (
                "Unlink \"\\clients\\client1\\x\" 0x6 NT_STATUS_OK",
                "line 1: Unlink: ",
            ),
            (
                "ReadX 7 0 1 1 NT_STATUS_OK",
                "line 1: ReadX: no file 7 is open",
            ),
            (
                "QUERY_PATH_INFORMATION \"\\clients\" 1 NT_STATUS_OBJECT_NAME_NOT_FOUND",
                "line 1: QUERY_PATH_INFORMATION: succeeded, other than when it was recorded",
            ),
        ] {
            let load = Load::parse(line.as_bytes()).unwrap();
            let error = run(&[&lib], &load, params, &|| Ok(())).unwrap_err();
            let text = format!("{error:#}");
            assert!(text.contains(why), "{text}");
        }
    }
}
