//! Threads at work on one volume through clones of the same handles, compared with the reference: some order of the
//! calls' steps must explain every answer and the final tree. There are many short rounds, each from the tree that the
//! last one left. After some of them the device as it stands is recovered elsewhere, judged by e2fsck, and must hold
//! the same tree.

use crate::common;
use crate::reference;
mod calls;
mod observe;
mod search;
mod spec;

use blockdev::{BlockDevice, MemDevice};
use calls::{Call, Event, Field, Handles, Maker, PathFrom, Reply};
use common::*;
use extant::{Error, OpenOptions, Volume, VolumeOptions};
use reference::{Model, NodeKind};
use spec::Context;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Names that are always there, so that a listing has something to miss.
const STAY: usize = 30;

struct Test {
    field: Field,
    threads: usize,
    /// Calls of each thread in a round.
    calls: usize,
}

fn open_small(device: &Arc<MemDevice>) -> Volume {
    let device = Arc::clone(device) as Arc<dyn BlockDevice>;
    VolumeOptions::new()
        .background(false)
        .cache_bytes(1 << 20)
        .open_device(device)
        .unwrap()
}

impl Test {
    fn run(&self, name: &str, args: &[&str], rounds: u64) {
        needs::tools!("mke2fs", "e2fsck");
        assert!(
            extant::unstable::jitter(12),
            "without debug assertions threads hardly ever meet: --profile test-fast"
        );
        // No thread clears the tree, so it grows. Therefore a new tree begins after a number of rounds.
        let rounds: Vec<u64> = seeds(1, rounds, rounds * 60).collect();
        for rounds in rounds.chunks(50) {
            self.batch(name, args, rounds);
        }
    }

    fn batch(&self, name: &str, args: &[&str], rounds: &[u64]) {
        let device = mem_image("24M", args);
        let volume = open_small(&device);
        let geometry = volume.geometry();
        let mut model = Model::new(geometry.features.has_extents(), geometry.inode_size == 128);
        self.prepare(&volume, &mut model);
        for &round in rounds {
            model = self.round(&volume, &model, round, name);
        }
        volume.sync().unwrap();
        self.recovered(&Arc::new(device.snapshot()), &model, name);
        volume.close().unwrap();
        assert_clean(&device, name);
        self.recovered(&device, &model, name);
    }

    /// The tree on a device, which may have to be recovered first.
    fn recovered(&self, device: &Arc<MemDevice>, model: &Model, name: &str) {
        let volume = open_small(device);
        let tree = observe::observe(&volume);
        observe::agree(&mut model.clone(), &tree)
            .unwrap_or_else(|e| panic!("{name}, opened again: {e}"));
        volume.close().unwrap();
        assert_clean(device, name);
    }

    fn prepare(&self, volume: &Volume, model: &mut Model) {
        let tops = (0..self.field.shared)
            .map(|n| format!("/s{n}"))
            .chain((0..self.threads).map(|n| format!("/own{n}")));
        for top in tops {
            volume.create_dir(&top).unwrap();
            let names = BTreeMap::new();
            model
                .make(&top, NodeKind::Dir { names, parent: 0 }, 0o755)
                .unwrap();
        }
        for n in 0..STAY {
            let path = format!("/s0/stays{n}");
            volume.create_new_file(&path).unwrap();
            model.open(&path, true, true, false, 0o644).unwrap();
        }
        observe::agree(model, &observe::observe(volume)).unwrap();
    }

    /// Runs one round. Returns the tree after it.
    fn round(&self, volume: &Volume, model: &Model, seed: u64, name: &str) -> Model {
        let mut rng = Rng::new(seed);
        let handles = self.handles(volume, model, &mut rng);
        let history = self.threads(volume, &handles, seed);
        let tree = observe::observe(volume);
        let held = observe::through_handles(&handles.files);
        let context = Context {
            dirs: handles.dirs.iter().map(|d| d.1).collect(),
            files: handles.files.iter().map(|f| f.1).collect(),
        };
        let explained = search::explain(&context, model, &history, |model| {
            observe::agree(model, &tree)?;
            observe::agree_through_handles(model, &held)
        });
        match explained {
            Ok(model) => model.compact(),
            Err(stuck) => panic!("{}", report(name, seed, model, &history, &stuck)),
        }
    }

    /// Makes and opens a few directories and files.
    fn handles(&self, volume: &Volume, model: &Model, rng: &mut Rng) -> Handles {
        let paths = model.paths();
        let mut some = |n: usize, wanted: fn(&NodeKind) -> bool| {
            let all: Vec<_> = paths
                .iter()
                .filter(|(path, id)| {
                    wanted(&model.nodes[*id].kind)
                        && path.matches('/').count() > 1
                        && !path.contains("stays")
                })
                .collect();
            let count = n.min(all.len());
            (0..count)
                .map(|_| all[rng.below(all.len() as u64) as usize])
                .collect::<Vec<_>>()
        };
        let dirs = some(2, |k| matches!(k, NodeKind::Dir { .. }));
        let files = some(3, |k| matches!(k, NodeKind::File(_)));
        let options = OpenOptions::new().read(true).write(true);
        Handles {
            dirs: dirs
                .into_iter()
                .map(|(path, id)| (volume.open_dir(path).unwrap(), *id))
                .collect(),
            files: files
                .into_iter()
                .map(|(path, id)| (volume.open_file_with(path, &options).unwrap(), *id))
                .collect(),
        }
    }

    fn threads(&self, volume: &Volume, handles: &Handles, seed: u64) -> Vec<Vec<Event>> {
        let (ready, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|s| {
            let workers: Vec<_> = (0..self.threads)
                .map(|t| {
                    let (volume, ready) = (volume.clone(), &ready);
                    s.spawn(move || {
                        let maker = Maker::new(seed * 64 + t as u64, self.field, t, handles);
                        ready.fetch_add(1, Ordering::SeqCst);
                        while ready.load(Ordering::SeqCst) < self.threads {
                            std::hint::spin_loop();
                        }
                        self.work(&volume, handles, maker)
                    })
                })
                .collect();
            let (volume, ended) = (volume.clone(), &ended);
            let beside = s.spawn(move || beside(&volume, handles, seed, ended));
            let history = workers.into_iter().map(|w| w.join().unwrap()).collect();
            ended.store(true, Ordering::SeqCst);
            beside.join().unwrap();
            history
        })
    }

    fn work(&self, volume: &Volume, handles: &Handles, mut maker: Maker) -> Vec<Event> {
        let mut events = Vec::with_capacity(self.calls);
        for _ in 0..self.calls {
            let call = maker.call();
            // On few CPUs, delays must make threads meet.
            match maker.below(8) {
                0 => std::thread::yield_now(),
                1 => (0..maker.below(2000)).for_each(|_| std::hint::spin_loop()),
                _ => {}
            }
            let begin = Instant::now();
            let result = calls::run(volume, handles, &call);
            let end = Instant::now();
            let answer = result.map_err(|e| {
                let fatal = matches!(
                    e,
                    Error::Io { .. } | Error::Stopped(_) | Error::Format(_) | Error::ReadOnly(_)
                );
                assert!(!fatal, "{call:?}: {e}");
                e.errno()
            });
            events.push(Event {
                call,
                begin,
                end,
                answer,
            });
        }
        events
    }
}

/// Work that must not disturb other threads: commits, dropped caches, listings.
fn beside(volume: &Volume, handles: &Handles, seed: u64, ended: &AtomicBool) {
    let mut rng = Rng::new(seed + 7);
    while !ended.load(Ordering::SeqCst) {
        match rng.below(5) {
            0 => volume.sync().unwrap(),
            1 => volume.drop_caches(),
            2 => {
                for (file, _) in &handles.files {
                    file.sync_all().unwrap();
                }
            }
            _ => {
                let names = list(volume, "/s0").unwrap().into_iter();
                let mut listed: Vec<Vec<u8>> = names.map(|e| e.name).collect();
                listed.sort();
                assert!(listed.windows(2).all(|w| w[0] != w[1]), "a name twice");
                let stay = listed.iter().filter(|n| n.starts_with(b"stays")).count();
                assert_eq!(stay, STAY, "names that stay are listed");
            }
        }
        std::thread::yield_now();
    }
}

fn report(
    name: &str,
    seed: u64,
    model: &Model,
    history: &[Vec<Event>],
    stuck: &search::Stuck,
) -> String {
    let zero = history.iter().flatten().map(|e| e.begin).min();
    let since = |at: Instant| zero.map_or(0, |zero| (at - zero).as_nanos());
    let mut lines = vec![format!(
        "{name}, round {seed}: no order explains this ({} states); done by thread: {:?}; {}",
        stuck.states,
        stuck.done,
        stuck.end.as_deref().unwrap_or("")
    )];
    for (path, id) in model.paths() {
        if !path.contains("stays") {
            let node = &model.nodes[id];
            lines.push(format!(
                "  {path}: {id}, {:?}, {} links",
                node.ino, node.links
            ));
        }
    }
    let mut all: Vec<(usize, usize, &Event)> = history
        .iter()
        .enumerate()
        .flat_map(|(t, h)| h.iter().enumerate().map(move |(n, e)| (t, n, e)))
        .collect();
    all.sort_by_key(|(_, _, e)| e.begin);
    for (t, n, e) in all {
        lines.push(format!(
            "  {t}.{n} [{}, {}] {:?} -> {:?}",
            since(e.begin),
            since(e.end),
            e.call,
            e.answer
        ));
    }
    lines.join("\n")
}

/// Checks that the search reports answers that no order explains: a name made twice, one seen before it is made, one
/// seen after its removal.
#[test]
fn some_histories_have_no_explanation() {
    let place = || PathFrom {
        base: None,
        path: "s0/n0".into(),
    };
    let model = || {
        let mut model = Model::new(true, false);
        let names = BTreeMap::new();
        model
            .make("/s0", NodeKind::Dir { names, parent: 0 }, 0o755)
            .unwrap();
        model
    };
    let start = Instant::now();
    let event = |begin, end, call, answer| Event {
        call,
        begin: start + Duration::from_secs(begin),
        end: start + Duration::from_secs(end),
        answer,
    };
    let create = |begin, end, ino| {
        let call = Call::Create {
            at: place(),
            exclusive: true,
            mode: 0o600,
        };
        event(begin, end, call, Ok(Reply::Ino(ino)))
    };
    let unlink = |begin, end, answer| event(begin, end, Call::Unlink { at: place() }, answer);
    let none = Context {
        dirs: vec![],
        files: vec![],
    };
    let explained = |history: &[Vec<Event>], exists: bool| {
        let end = |model: &mut Model| {
            let found = model.walk("/s0/n0", false).is_ok();
            if found == exists {
                Ok(())
            } else {
                Err("not the tree".to_string())
            }
        };
        search::explain(&none, &model(), history, end).is_ok()
    };
    let gone = Ok(Reply::Done);
    let missing = Err(rustix::io::Errno::NOENT.raw_os_error());
    assert!(explained(
        &[vec![create(0, 3, 12)], vec![unlink(1, 2, gone.clone())]],
        false
    ));
    assert!(
        !explained(
            &[vec![create(0, 1, 12)], vec![unlink(2, 3, missing.clone())]],
            true
        ),
        "the removal began after the name was there"
    );
    assert!(explained(
        &[vec![create(0, 2, 12)], vec![unlink(1, 3, missing)]],
        true
    ));
    assert!(
        !explained(&[vec![create(0, 3, 12)], vec![create(1, 2, 13)]], true),
        "made twice"
    );
    let twice = [
        vec![create(0, 9, 12)],
        vec![create(0, 9, 13)],
        vec![unlink(0, 9, gone.clone())],
    ];
    assert!(explained(&twice, true));
    assert!(!explained(&twice, false), "one of them is there at the end");
    let same = [
        vec![create(0, 1, 12), create(2, 3, 12)],
        vec![unlink(0, 9, gone)],
    ];
    assert!(explained(&same, true), "a number may come again");
}

/// Many threads for few names in one directory.
#[test]
fn few_names() {
    let field = Field {
        shared: 1,
        names: 3,
        deep: 0,
    };
    let test = Test {
        field,
        threads: 6,
        calls: 12,
    };
    test.run(
        "few names",
        &["-t", "ext4", "-J", "size=4", "-O", "orphan_file"],
        40,
    );
}

/// Directories are made, removed and moved while other threads walk through them.
#[test]
fn moving_directories() {
    let field = Field {
        shared: 2,
        names: 4,
        deep: 50,
    };
    let test = Test {
        field,
        threads: 4,
        calls: 25,
    };
    test.run(
        "moving directories",
        &["-t", "ext4", "-b", "1024", "-J", "size=1"],
        40,
    );
}

/// A volume without extents or a journal.
#[test]
fn block_maps() {
    let field = Field {
        shared: 2,
        names: 6,
        deep: 25,
    };
    let test = Test {
        field,
        threads: 4,
        calls: 25,
    };
    test.run("block maps", &["-t", "ext2", "-b", "1024"], 40);
}
