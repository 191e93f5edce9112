//! kill -9 in a loop. A child runs a load of many threads on an image file and reports each sync over a pipe, until it
//! is killed at a random moment. Then every reported change exists, the tree is whole, and e2fsck is content: with the
//! image after our recovery, and alone with it as it was left.

use crate::common;
use common::*;
use extant::{Error, Volume, VolumeOptions};
use extant_testing::common::copy_image;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const IMAGE: &str = "EXTANT_KILL_IMAGE";
const SEED: &str = "EXTANT_KILL_SEED";
const THREADS: u64 = 4;

fn content(t: u64, n: u64) -> Vec<u8> {
    let mut rng = Rng::new(t * 1_000_003 + n + 1);
    let len = [0, 100, 4096, 9_000, 60_000][rng.below(5) as usize];
    (0..len).map(|_| rng.next() as u8).collect()
}

/// Prints one line in one write.
fn say(line: String) {
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}

/// The load: files made, synced, renamed, removed. A fact is reported only after the call that makes it true. A name is
/// only reported once, and `gone` is reported before the removal begins: from then on any state is allowed.
fn load(v: &Volume, round: u64, t: u64) {
    let mut rng = Rng::new(round * 100 + t);
    let dir = format!("/t{t}");
    let _ = v.create_dir(&dir);
    for n in 0.. {
        let base = round * 1_000_000 + n;
        let (path, temp) = (format!("{dir}/f{base}"), format!("{dir}/temp"));
        let bytes = content(t, base);
        match rng.below(6) {
            // Saves as editors do: write a new file, sync, rename it over the old.
            0 | 1 => {
                v.write(&temp, &bytes).unwrap();
                v.open_file(&temp).unwrap().sync_all().unwrap();
                v.rename(&temp, &path).unwrap();
                v.open_dir(&dir).unwrap().sync_all().unwrap();
                say(format!("file {t} {base}\n"));
            }
            2 => {
                let file = v.create_new_file(&path).unwrap();
                file.write_at(&bytes, 0).unwrap();
                file.sync_all().unwrap();
                say(format!("file {t} {base}\n"));
                if rng.below(2) == 0 {
                    say(format!("gone {t} {base}\n"));
                    v.remove_file(&path).unwrap();
                }
            }
            3 => {
                let shared = format!("/shared/s{t}.{base}");
                v.write(&shared, &bytes).unwrap();
                v.hard_link(&shared, &path).unwrap();
                v.remove_file(&shared).unwrap();
            }
            4 => {
                let _ = v.create_dir(format!("{dir}/d{}", n % 7));
                let _ = v.remove_dir(format!("{dir}/d{}", (n + 3) % 7));
                say(format!("gone {t} {}\n", base.saturating_sub(40)));
                let _ = v.remove_file(format!("{dir}/f{}", base.saturating_sub(40)));
            }
            _ => {
                let _ = v.rename(
                    format!("/shared/m{}", rng.below(20)),
                    format!("/shared/m{}", rng.below(20)),
                );
                let _ = v.create_new_file(format!("/shared/m{}", rng.below(20)));
            }
        }
        // Files made long ago are removed, so that there is room on a fast machine as well.
        if let Some(old) = n.checked_sub(1000).map(|n| round * 1_000_000 + n) {
            say(format!("gone {t} {old}\n"));
            match v.remove_file(format!("{dir}/f{old}")) {
                Ok(()) | Err(Error::NotFound) => {}
                Err(e) => panic!("{e}"),
            }
        }
        if n % 50 == 49 {
            v.sync().unwrap();
        }
    }
}

/// The child's program, which is not a test.
#[test]
fn child() {
    let Some(image) = std::env::var_os(IMAGE) else {
        return;
    };
    let round = std::env::var(SEED).unwrap().parse().unwrap();
    // The background thread commits too.
    let v = VolumeOptions::new()
        .commit_interval(Duration::from_millis(30))
        .open(image)
        .unwrap();
    let _ = v.create_dir_with_mode("/shared", 0o777);
    std::thread::scope(|s| {
        for t in 0..THREADS {
            let v = &v;
            s.spawn(move || load(v, round, t));
        }
    });
}

/// A child that does not outlive the test.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the child for a while and kills it. Returns its reports.
fn run_and_kill(image: &Path, round: u64, after: Duration) -> Vec<String> {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child", "--nocapture", "--test-threads=1"])
        .env(IMAGE, image)
        .env(SEED, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Victim(child);
    let out = child.0.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        // A torn last line does not count as reported.
        let mut lines = Vec::new();
        let mut out = BufReader::new(out);
        let mut line = String::new();
        while out.read_line(&mut line).is_ok_and(|n| n > 0) {
            if line.ends_with('\n') {
                lines.push(line.trim().to_string());
            }
            line.clear();
        }
        lines
    });
    std::thread::sleep(after);
    assert!(
        child.0.try_wait().unwrap().is_none(),
        "the child ended by itself"
    );
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    reader.join().unwrap()
}

fn rounds(args: &[&str], rounds: u64) {
    needs::tools!("mke2fs", "e2fsck");
    let dir = needs::memory_dir();
    let image = dir.path().join("image");
    mke2fs(&image, "256M", args);
    let mut rng = Rng::new(args.len() as u64 + 99);
    // The required content, by file.
    let mut synced: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut facts = 0;
    for round in 0..rounds {
        let what = format!("{args:?}, round {round}");
        let after = Duration::from_millis(120 + rng.below(500));
        for line in run_and_kill(&image, round, after) {
            let words: Vec<&str> = line.split(' ').collect();
            let [kind, t, n] = words[..] else { continue };
            let (Ok(t), Ok(n)) = (t.parse::<u64>(), n.parse::<u64>()) else {
                continue;
            };
            let path = format!("/t{t}/f{n}");
            match kind {
                "file" => drop(synced.insert(path, content(t, n))),
                "gone" => drop(synced.remove(&path)),
                _ => continue,
            }
            facts += 1;
        }
        // On the image as the killed process left it, e2fsck alone repairs everything.
        let copy = dir.path().join("copy");
        copy_image(&image, &copy);
        repair(&copy, &format!("{what}: after e2fsck -p"));
        for (by, path) in [("e2fsck", &copy), ("us", &image)] {
            let v = VolumeOptions::new()
                .background(false)
                .open(path)
                .unwrap_or_else(|e| panic!("{what}, by {by}: {e}"));
            assert!(
                v.read_only().is_none(),
                "{what}, by {by}: {:?}",
                v.read_only()
            );
            for (path, bytes) in &synced {
                let found = v
                    .read(path)
                    .unwrap_or_else(|e| panic!("{what}, by {by}: {path} was synced: {e}"));
                assert!(
                    found == *bytes,
                    "{what}, by {by}: {path} was synced with other bytes"
                );
            }
            snapshot(&v).unwrap_or_else(|e| panic!("{what}, by {by}: {e}"));
            if by == "us" {
                // Room for the next round.
                for t in 0..THREADS {
                    let dir = format!("/t{t}");
                    for entry in list(&v, &dir).unwrap_or_default() {
                        let path = format!("{dir}/{}", String::from_utf8_lossy(&entry.name));
                        if entry.file_type == extant::FileType::Regular && rng.below(3) > 0 {
                            v.remove_file(&path).unwrap();
                            synced.remove(&path);
                        }
                    }
                }
            }
            v.close().unwrap_or_else(|e| panic!("{what}, by {by}: {e}"));
            assert_clean_file(path, &format!("{what}, by {by}"));
        }
    }
    assert!(
        facts > 5 * rounds,
        "too little was synced to judge: {facts}"
    );
    eprintln!("{args:?}: {rounds} kills, {facts} facts");
}

fn count(n: u64) -> u64 {
    if torture() { n * 40 } else { n }
}

#[test]
fn ext4() {
    rounds(
        &[
            "-t",
            "ext4",
            "-J",
            "size=8",
            "-O",
            "metadata_csum_seed,orphan_file",
        ],
        count(3),
    );
}

#[test]
fn small_blocks_small_journal() {
    rounds(&["-t", "ext4", "-b", "1024", "-J", "size=1"], count(2));
}

#[test]
fn ext3() {
    rounds(&["-t", "ext3", "-J", "size=8"], count(1));
}
