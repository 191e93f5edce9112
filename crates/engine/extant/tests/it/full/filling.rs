//! Filling a volume, and the checks of a full volume.

use crate::common::*;
use extant::OpenOptions;
use extant::{Error, Volume};
use std::collections::BTreeMap;

/// Returns whether a call worked or failed for lack of space. Any other error fails the test.
#[track_caller]
pub fn fits<T>(result: extant::Result<T>, what: &str) -> bool {
    match result {
        Ok(_) => true,
        Err(Error::NoSpace(_)) => false,
        Err(e) => panic!("{what}: {e:?}"),
    }
}

pub fn content(n: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(n + 1);
    (0..len).map(|_| rng.next() as u8 | 1).collect()
}

pub const RW: OpenOptions = OpenOptions::new().read(true).write(true);

/// Writes files of these sizes until nothing fits. Returns the stored files.
pub fn fill(v: &Volume, dir: &str, sizes: &[usize]) -> BTreeMap<String, Vec<u8>> {
    let mut kept = BTreeMap::new();
    for (n, &len) in sizes.iter().cycle().enumerate().take(100_000) {
        let path = format!("{dir}/file{n}");
        let Ok(file) = v.create_new_file(&path) else {
            assert!(!fits(v.create_new_file(&path), "create"));
            return kept;
        };
        let bytes = content(n as u64, len);
        let stored = match file.write_at(&bytes, 0) {
            Ok(stored) => stored,
            Err(Error::NoSpace(_)) => 0,
            Err(e) => panic!("write: {e:?}"),
        };
        assert_eq!(file.metadata().unwrap().len() as usize, stored);
        kept.insert(path, bytes[..stored].to_vec());
        if stored < len {
            let more = file.write_at(&bytes[stored..], stored as u64);
            assert!(matches!(more, Err(Error::NoSpace(_))), "{more:?}");
            return kept;
        }
    }
    panic!("the volume never became full");
}

#[track_caller]
pub fn intact(v: &Volume, kept: &BTreeMap<String, Vec<u8>>, what: &str) {
    for (path, bytes) in kept {
        let found = v
            .read(path)
            .unwrap_or_else(|e| panic!("{what}: {path}: {e}"));
        assert!(found == *bytes, "{what}: {path} differs");
    }
}
