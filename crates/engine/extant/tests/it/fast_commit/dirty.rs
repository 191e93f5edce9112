//! Images with fast commits of the kernel, copied while the kernel writes to them.

use super::without_times;
use crate::common::*;
use crate::kernel::tree::{Tree, kernel_tree, our_tree, same};
use extant_testing::mounted::{Mounted, able, image, open_file};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

/// Runs an operation on a mount of the kernel, and syncs the changed files. An operation that fails changes nothing.
fn kernel_step(root: &Path, rng: &mut Rng, n: u64) {
    let mut name = || match rng.below(4) {
        0 => root.join(format!("dir{}/f{}", rng.below(3), rng.below(6))),
        _ => root.join(format!("f{}", rng.below(12))),
    };
    let (any, other) = (name(), name());
    let open = || std::fs::File::options().write(true).open(&any);
    let dir = root.join(format!("dir{}", rng.below(3)));
    let _ = match rng.below(16) {
        0..4 => std::fs::write(&any, vec![n as u8; rng.below(20_000) as usize]),
        4 => open().and_then(|file| file.write_all_at(&[n as u8; 5000], rng.below(60_000))),
        5 => open().and_then(|file| file.set_len(rng.below(30_000))),
        6 => std::fs::hard_link(&any, &other),
        7 | 8 => std::fs::rename(&any, &other),
        9 => {
            let mode = std::fs::Permissions::from_mode(0o600 | (n % 64) as u32);
            std::fs::set_permissions(&any, mode)
        }
        10 => std::fs::remove_file(&any),
        11 => std::os::unix::fs::symlink(format!("target {n}"), &any),
        12 => {
            let value = vec![n as u8; rng.below(60) as usize];
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&any, "user.name", &value, flags).map_err(Into::into)
        }
        13 => std::fs::create_dir(&dir),
        14 => std::fs::remove_dir(&dir),
        _ => open().and_then(|file| {
            let at = rng.below(4) * 4096;
            let punch =
                rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, punch, at, 4096).map_err(Into::into)
        }),
    };
    // Also write and sync a file, because an fsync of a directory writes no fast commit, and an operation may leave no file.
    std::fs::write(root.join("last"), format!("{n}")).unwrap();
    // Writes go through symbolic links, so the files that these lead to are synced, too.
    for path in [&any, &other, &root.join("last")] {
        if std::fs::metadata(path).is_ok_and(|found| found.is_file()) {
            std::fs::File::open(path).unwrap().sync_all().unwrap();
        }
    }
}

/// Clears the fields that the kernel's replay does not restore: the times, links and blocks of directories.
fn comparable(tree: Tree) -> Tree {
    let mut tree = without_times(tree);
    for entry in tree
        .values_mut()
        .filter(|entry| entry.mode & 0o170000 == 0o040000)
    {
        (entry.links, entry.sectors, entry.size) = Default::default();
    }
    tree
}

/// The replay of Extant gives the same result as that of the kernel. The kernel does not replay all of its own fast commits,
/// such as those of symbolic links and of reused inode numbers. For these, Extant restores the state that was synced.
#[test]
fn extant_and_the_kernel_replay_the_same_state() {
    if !able() {
        return;
    }
    let (mut images, mut pending, mut unlike) = (0, 0, 0);
    for seed in seeds(1, 2, 40) {
        let dir = needs::memory_dir();
        let block_size = if seed % 2 == 0 { "1024" } else { "4096" };
        let args = ["-t", "ext4", "-O", "fast_commit", "-b", block_size];
        let path = image(&dir, &args);
        let mounted = Mounted::new(&path, "");
        let mut rng = Rng::new(seed);
        for n in 0..48 {
            kernel_step(mounted.path(), &mut rng, n);
            if n % 8 != 7 {
                continue;
            }
            let [ours, theirs] = ["ours", "theirs"].map(|name| dir.path().join(name));
            copy_image(&path, &ours);
            copy_image(&ours, &theirs);
            let what = format!("seed {seed}, step {n}");
            let synced = comparable(kernel_tree(mounted.path()));
            let replayed = Mounted::new(&theirs, "");
            let wanted = comparable(kernel_tree(replayed.path()));
            replayed.unmount();
            let volume = open_file(&ours);
            images += 1;
            pending += usize::from(volume.recovery().fast_changes > 0);
            let found = comparable(our_tree(&volume));
            if found == wanted {
                volume.close().unwrap();
                assert_clean_file(&ours, &what);
                continue;
            }
            unlike += 1;
            same(&found, &synced, &what);
            volume.close().unwrap();
            assert_clean_file(&ours, &what);
        }
        mounted.unmount();
    }
    eprintln!(
        "{images} images, {pending} of them with fast commits, {unlike} unlike the kernel's replay"
    );
    assert!(pending * 4 > images, "{pending} of {images}");
}
