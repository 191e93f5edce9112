use super::Fs;
use crate::item::*;
use ext4_format::InodeNr;
use ext4_format::inode::InodeCore;
use ext4_format::xattr::XattrSet;
use std::sync::Arc;

fn set(names: &[(&str, usize)]) -> Arc<XattrSet> {
    let mut set = XattrSet::default();
    for (name, len) in names {
        set.set(name.as_bytes(), &vec![b'v'; *len]).unwrap();
    }
    Arc::new(set)
}

fn acl(fs: &Fs, ino: u32) -> u64 {
    ext4_format::inode::file_acl(&fs.raw(ino), &fs.geometry).0
}

#[test]
fn attributes_in_the_inode_and_in_shared_blocks() {
    for args in [
        &["-t", "ext4"][..],
        &["-t", "ext4", "-O", "^metadata_csum"],
        &["-t", "ext2", "-I", "128"],
    ] {
        let Some(mut fs) = Fs::make(12 << 10, args) else {
            return;
        };
        let (small, large, other) = (
            set(&[("user.a", 10)]),
            set(&[("user.a", 10), ("user.b", 600)]),
            set(&[("user.c", 500)]),
        );
        let cores: Vec<_> = (0..1500)
            .map(|i| {
                let core = fs.create(2, format!("f{i}").as_bytes(), 20 + i);
                let set = if i % 3 == 0 { &small } else { &large };
                fs.misc(20 + i, MiscEvent::Xattrs(Arc::clone(set)));
                core
            })
            .collect();
        let output = fs.check();
        // 1000 share one block, and at most one more for the small ones of short inodes.
        let blocks = output
            .published
            .iter()
            .filter(|p| p.ino.0 >= 20 && p.sectors_delta > 0)
            .count();
        assert!(blocks >= 1000);
        assert_eq!(acl(&fs, 21), acl(&fs, 22));
        assert!(fs.debugfs("ea_list f1").contains("user.b (600)"));
        // An inode changes its attributes: copy on write. Another inode is freed, and another loses its attributes.
        fs.misc(21, MiscEvent::Xattrs(Arc::clone(&other)));
        fs.misc(22, MiscEvent::Xattrs(Arc::default()));
        fs.unlink(2, b"f4", 24, cores[4]);
        fs.check();
        assert_ne!(acl(&fs, 21), acl(&fs, 25));
        assert_eq!(acl(&fs, 22), 0);
        // A change of an unshared block is made in place. Back at the shared block, the separate one is freed.
        let alone = acl(&fs, 21);
        fs.misc(21, MiscEvent::Xattrs(set(&[("user.c", 501)])));
        fs.check();
        assert_eq!(acl(&fs, 21), alone);
        fs.misc(21, MiscEvent::Xattrs(Arc::clone(&large)));
        let output = fs.check();
        assert_eq!(output.revoked.len(), 1);
        assert_eq!(acl(&fs, 21), acl(&fs, 25));
        let mut fs = fs.reopen();
        for i in (0..1500).filter(|i| *i != 4) {
            fs.unlink(2, format!("f{i}").as_bytes(), 20 + i, cores[i as usize]);
        }
        fs.check();
    }
}

#[test]
fn more_than_a_block_can_be_shared_by() {
    let Some(mut fs) = Fs::make(12 << 10, &["-t", "ext4", "-N", "4096"]) else {
        return;
    };
    let large = set(&[("user.b", 900)]);
    for i in 0..1030 {
        fs.create(2, format!("f{i}").as_bytes(), 20 + i);
        fs.misc(20 + i, MiscEvent::Xattrs(Arc::clone(&large)));
    }
    let output = fs.check();
    assert_ne!(acl(&fs, 20), acl(&fs, 1049));
    assert!(output.taken >= 2);
}

#[test]
fn orphans_on_the_list_and_in_the_file() {
    for args in [
        &["-t", "ext4", "-O", "^orphan_file"][..],
        &["-t", "ext4", "-O", "orphan_file", "-b", "1024"],
        &["-t", "ext2"],
    ] {
        let Some(mut fs) = Fs::make(16 << 10, &[args, &["-N", "10240"]].concat()) else {
            return;
        };
        let in_file = fs.geometry.features.has_orphan_file();
        // More orphans than the file holds in blocks of 1 KiB.
        let n = 9000;
        let cores: Vec<_> = (0..n)
            .map(|i| fs.create(2, format!("f{i}").as_bytes(), 20 + i))
            .collect();
        fs.push();
        for i in 0..n {
            fs.name(
                2,
                format!("f{i}").as_bytes(),
                0,
                ext4_format::FileType::Regular,
            );
            fs.inode(
                20 + i,
                InodeEvent::Update,
                InodeCore {
                    links: 0,
                    ..cores[i as usize]
                },
            );
            fs.misc(20 + i, MiscEvent::OrphanAdd);
        }
        fs.push();
        let mut fs = fs.reopen();
        let orphans = fs.formatter.orphans();
        assert_eq!(orphans, (0..n).map(|i| InodeNr(20 + i)).collect::<Vec<_>>());
        // Ends, middle, neighbours; some live on. An update must not cut the list.
        fs.inode(
            25,
            InodeEvent::Update,
            InodeCore {
                links: 0,
                ..cores[5]
            },
        );
        for i in [0, 1, 2, 50, 51, n - 2, n - 1] {
            fs.inode(
                20 + i,
                InodeEvent::Free,
                InodeCore {
                    dtime: 1_700_000_000,
                    links: 0,
                    ..cores[i as usize]
                },
            );
            if i % 2 == 0 {
                fs.misc(20 + i, MiscEvent::OrphanRemove);
            }
        }
        fs.name(2, b"saved", 100, ext4_format::FileType::Regular);
        fs.inode(
            100,
            InodeEvent::Update,
            InodeCore {
                links: 1,
                ..cores[80]
            },
        );
        fs.misc(100, MiscEvent::OrphanRemove);
        fs.push();
        let mut fs = fs.reopen();
        assert_eq!(fs.formatter.orphans().len() as u32, n - 8);
        assert_eq!(fs.on_disk(100).dtime, 0);
        for ino in fs.formatter.orphans() {
            fs.inode(
                ino.0,
                InodeEvent::Free,
                InodeCore {
                    dtime: 1_700_000_000,
                    links: 0,
                    ..cores[ino.0 as usize - 20]
                },
            );
        }
        fs.check();
        assert!(fs.formatter.orphans().is_empty());
        if in_file {
            assert!(!fs.debugfs("stats").contains("orphan_present"));
        }
    }
}
