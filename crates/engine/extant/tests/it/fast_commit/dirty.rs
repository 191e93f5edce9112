//! Images with fast commits of the kernel, copied while the kernel writes to them.

use super::without_times;
use crate::common::*;
use crate::kernel::tree::{Tree, kernel_tree, our_tree, same};
use extant_testing::mounted::{Mounted, able, image, open_file};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

/// Runs an operation on a mount of the kernel, and syncs the changed files. An operation that fails changes nothing. Files
/// that lose their names stay open in `held`.
fn kernel_step(root: &Path, rng: &mut Rng, n: u64, held: &mut Vec<std::fs::File>) {
    let mut name = || match rng.below(4) {
        0 => root.join(format!("dir{}/f{}", rng.below(3), rng.below(6))),
        _ => root.join(format!("f{}", rng.below(12))),
    };
    let (any, other) = (name(), name());
    let open = || std::fs::File::options().write(true).open(&any);
    let [dir, other_dir] = [rng.below(3), rng.below(3)].map(|n| root.join(format!("dir{n}")));
    let _ = match rng.below(26) {
        0..4 => std::fs::write(&any, vec![n as u8; rng.below(20_000) as usize]),
        4 => open().and_then(|file| file.write_all_at(&[n as u8; 5000], rng.below(60_000))),
        5 => open().and_then(|file| file.set_len(rng.below(30_000))),
        6 => std::fs::hard_link(&any, &other),
        7 | 8 => std::fs::rename(&any, &other),
        9 => {
            let mode = std::fs::Permissions::from_mode(0o600 | (n % 64) as u32);
            let path = [&any, &dir][rng.below(2) as usize];
            std::fs::set_permissions(path, mode)
        }
        10 => std::fs::remove_file(&any),
        11 => {
            let target = "target ".repeat(1 + rng.below(20) as usize);
            std::os::unix::fs::symlink(format!("{target}{n}"), &any)
        }
        12 => {
            let value = vec![n as u8; [60, 600][rng.below(2) as usize]];
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&any, "user.name", &value, flags).map_err(Into::into)
        }
        13 | 14 => std::fs::create_dir(&dir),
        15 => std::fs::remove_dir(&dir),
        16 => std::fs::rename(&dir, &other_dir),
        17 => {
            let exchange = rustix::fs::RenameFlags::EXCHANGE;
            let cwd = rustix::fs::CWD;
            rustix::fs::renameat_with(cwd, &any, cwd, &other, exchange).map_err(Into::into)
        }
        18 => {
            let (cwd, mode) = (rustix::fs::CWD, rustix::fs::Mode::RUSR);
            let kinds = [
                rustix::fs::FileType::Socket,
                rustix::fs::FileType::CharacterDevice,
            ];
            let kind = kinds[rng.below(2) as usize];
            // Numbers of no driver, because later steps open the file.
            let device = rustix::fs::makedev(60, n as u32);
            rustix::fs::mknodat(cwd, &any, kind, mode, device).map_err(Into::into)
        }
        19 | 20 => open().and_then(|file| {
            std::fs::remove_file(&any)?;
            file.write_all_at(&[n as u8; 5000], rng.below(3) * 4000)?;
            file.sync_all()?;
            held.push(file);
            Ok(())
        }),
        21 => {
            held.clear();
            Ok(())
        }
        22 => (0..20).try_for_each(|i| {
            let long = "a long name ".repeat(1 + rng.below(15) as usize);
            let file = std::fs::File::create(dir.join(format!("{long}{i}")))?;
            file.write_all_at(b"x", 0)?;
            file.sync_all()
        }),
        _ => open().and_then(|file| {
            use rustix::fs::FallocateFlags as F;
            let at = rng.below(4) * 4096;
            let modes = [
                F::PUNCH_HOLE | F::KEEP_SIZE,
                F::KEEP_SIZE,
                F::ZERO_RANGE,
                F::COLLAPSE_RANGE,
                F::INSERT_RANGE,
            ];
            let mode = modes[rng.below(5) as usize];
            rustix::fs::fallocate(&file, mode, at, 4096).map_err(Into::into)
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

/// Clears the permissions of directories.
fn without_modes(mut tree: Tree) -> Tree {
    for entry in tree.values_mut() {
        if entry.mode & 0o170000 == 0o040000 {
            entry.mode = 0o040000;
        }
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
        let mut held = Vec::new();
        for n in 0..48 {
            kernel_step(mounted.path(), &mut rng, n, &mut held);
            if n % 8 != 7 {
                continue;
            }
            let [ours, theirs] = ["ours", "theirs"].map(|name| dir.path().join(name));
            copy_image(&path, &ours);
            copy_image(&ours, &theirs);
            let what = format!("seed {seed}, step {n}");
            let synced = comparable(kernel_tree(mounted.path()));
            // The kernel does not mount each of its own images.
            let wanted = Mounted::try_new(&theirs, "").ok().map(|replayed| {
                let wanted = comparable(kernel_tree(replayed.path()));
                replayed.unmount();
                wanted
            });
            let volume = open_file(&ours);
            images += 1;
            pending += usize::from(volume.recovery().fast_changes > 0);
            let found = comparable(our_tree(&volume));
            if wanted.as_ref() == Some(&found) {
                volume.close().unwrap();
                assert_clean_file(&ours, &what);
                continue;
            }
            unlike += 1;
            // Linux records no modes of directories.
            let [found, synced] = [found, synced].map(without_modes);
            same(&found, &synced, &what);
            volume.close().unwrap();
            assert_clean_file(&ours, &what);
        }
        drop(held);
        mounted.unmount();
    }
    eprintln!(
        "{images} images, {pending} of them with fast commits, {unlike} unlike the kernel's replay"
    );
    assert!(pending * 4 > images, "{pending} of {images}");
    assert!(unlike * 2 <= images, "{unlike} of {images}");
}
