//! Images with blocks of two moments, as a device has them that lost some of its writes. The mutators of `breaking` change single
//! structures of one moment.

use super::bases::{self, BaseKind, KINDS};
use super::{Files, Outcome, judge, least};
use crate::it::common::{Rng, on_all_cores, seeds};
use crate::it::debugfs::Image;
use crate::it::mounted::{Mounted, able};
use blockdev::{BlockDevice, MemDevice};
use std::path::Path;

/// Percentage of the mixed images mended by e2fsck that a repair must mend without keeping fewer files.
const LEAST: u64 = 80;

/// A volume at two moments.
struct Pair {
    name: &'static str,
    older: MemDevice,
    newer: MemDevice,
    /// Files of the second moment.
    files: Files,
    block_size: u64,
    /// The blocks that differ.
    changed: Vec<u64>,
}

#[test]
fn images_of_two_moments_are_mended_as_by_e2fsck() {
    if !able() || !needs::have(&["debugfs", "setfattr", "chattr"]) {
        return;
    }
    let kinds = KINDS.iter().filter(|kind| kind.is_changed_by_linux());
    let pairs: Vec<Pair> = kinds.filter_map(|kind| pair(kind).ok()).collect();
    assert!(pairs.len() > 8, "{} volumes", pairs.len());
    let outcomes = on_all_cores(super::THREADS, seeds(0, 60, 20_000), |seed| {
        let pair = &pairs[(seed % pairs.len() as u64) as usize];
        let (device, told) = pair.mix(&mut Rng::new(seed));
        judge((pair.name, Some(&pair.files)), &device, seed, &told)
    });
    let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
    super::table(pairs.iter().map(|pair| pair.name), &outcomes);
    least(&outcomes, LEAST);
}

fn pair(kind: &BaseKind) -> Result<Pair, String> {
    let older = bases::make(kind)?;
    let newer = Image::copy(&older);
    let mounted = Mounted::try_new(&newer.path(), "")?;
    change(mounted.path()).map_err(|error| error.to_string())?;
    mounted.unmount();
    let bytes = [&older, &newer].map(|image| image.device().to_bytes().unwrap());
    let of = |n: usize| bytes[n].chunks(older.block as usize);
    let both = (0..).zip(of(0).zip(of(1)));
    Ok(Pair {
        name: kind.name,
        files: newer.files(),
        block_size: older.block,
        changed: both.filter(|(_, (a, b))| a != b).map(|(n, _)| n).collect(),
        older: older.device(),
        newer: newer.device(),
    })
}

/// Moves, removes, makes and rewrites files and directories.
fn change(root: &Path) -> std::io::Result<()> {
    let at = |path: &str| root.join(path);
    std::fs::rename(at("dir-0/below"), at("dir-1/moved"))?;
    std::fs::rename(at("dir-2"), at("dir-3/dir-2"))?;
    std::fs::rename(at("dir-1/file-1"), at("dir-0/here"))?;
    std::fs::remove_dir_all(at("dir-1/below"))?;
    for n in (0..120).step_by(2) {
        std::fs::remove_file(at(&format!("big/{n:0>50}")))?;
    }
    std::fs::create_dir(at("fresh"))?;
    for n in 0..40 {
        std::fs::create_dir(at(&format!("fresh/{n}")))?;
        std::fs::write(at(&format!("fresh/{n}/file")), format!("{n}").repeat(900))?;
    }
    std::fs::write(at("dir-3/file-2"), vec![b'n'; 9000])?;
    std::fs::hard_link(at("dir-3/file-2"), at("fresh/link"))?;
    std::fs::File::options()
        .write(true)
        .open(at("spread"))?
        .set_len(5000)
}

impl Pair {
    /// Returns the volume of the second moment with some blocks of the first, and the numbers of these.
    fn mix(&self, rng: &mut Rng) -> (MemDevice, String) {
        let device = self.newer.snapshot();
        let percentage = [3, 20, 50][rng.below(3) as usize];
        let mut bytes = vec![0; self.block_size as usize];
        let mut old = Vec::new();
        for &block in &self.changed {
            if rng.below(100) < percentage {
                let at = block * self.block_size;
                self.older.read_at(at, &mut bytes).unwrap();
                device.write_at(at, &bytes).unwrap();
                old.push(block);
            }
        }
        (device, format!("older blocks {old:?}"))
    }
}
