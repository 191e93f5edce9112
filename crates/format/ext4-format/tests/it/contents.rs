//! The content of inodes, judged both ways: this crate reads trees that mke2fs, e2fsck and debugfs made, and e2fsck
//! and debugfs judge trees that it wrote.
//!
//! Without e2fsprogs the tests pass with a note, unless `CI` is set in the environment.

use crate::it::walk;
use ext4_format::extent::{self, Extent};
use ext4_format::htree::{self, DxEntry, IndexBlockKind, RootInit};
use ext4_format::jbd2::{self, Commit, DescriptorWriter, LogEnd, RevokeWriter, Superblock, plan};
use ext4_format::{BlockNr, FormatError, InodeNr, dir_entry, inode, xattr};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use walk::Volume;

/// Runs a tool and returns its exit code and output; `None` when it is missing and not required.
fn tool(name: &str, args: &[&str]) -> Option<(i32, String)> {
    match Command::new(name).args(args).output() {
        Ok(out) => {
            let text = [out.stdout, out.stderr].concat();
            Some((
                out.status.code().unwrap_or(-1),
                String::from_utf8_lossy(&text).into_owned(),
            ))
        }
        Err(e) => {
            needs::ignored(&format!(
                "{name} (Debian package {}): {e}",
                needs::package(name)
            ));
            None
        }
    }
}

/// A temporary directory, removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("ext4-format-{name}-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("tree")).unwrap();
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns an image of `tree`, its large directories indexed by e2fsck.
    fn image(&self, args: &[&str]) -> Option<PathBuf> {
        let (image, tree) = (self.path("image"), self.path("tree"));
        let (image_str, tree_str) = (image.to_str().unwrap(), tree.to_str().unwrap());
        let tail = ["-q", "-F", "-d", tree_str, image_str, "32M"];
        let (code, text) = tool("mke2fs", &[args, &tail].concat())?;
        assert_eq!(code, 0, "{text}");
        let (code, text) = tool("e2fsck", &["-fyD", image_str])?;
        assert!(code <= 1, "{text}");
        Some(image)
    }
}

fn fsck(image: &Path) {
    let (code, text) = tool("e2fsck", &["-fn", image.to_str().unwrap()]).unwrap();
    assert_eq!(code, 0, "{text}");
}

fn debugfs(image: &Path, request: &str) -> String {
    tool("debugfs", &["-w", "-R", request, image.to_str().unwrap()])
        .unwrap()
        .1
}

/// Creates files of many sizes, one with holes, and a directory of many names.
fn fill(tree: &Path) {
    for (i, len) in [0, 1, 59, 60, 1024, 5000, 70_000, 600_000]
        .into_iter()
        .enumerate()
    {
        let bytes: Vec<u8> = (0..len).map(|b| (b / 7 + i) as u8).collect();
        fs::write(tree.join(format!("file{i}")), bytes).unwrap();
    }
    let mut holes = vec![0; 400_000];
    (0..90).for_each(|i| holes[i * 4096 + 4096..][..10].fill(i as u8 + 1));
    fs::write(tree.join("holes"), holes).unwrap();
    for i in 0..1500 {
        let name = format!("d/{i}-{}", "ünïcödé-name".repeat(i % 4));
        fs::create_dir_all(tree.join("d")).unwrap();
        fs::write(tree.join(name), "").unwrap();
    }
}

#[test]
fn trees_of_mke2fs_read_the_same() {
    let features: [&[&str]; 5] = [
        &["-t", "ext4", "-b", "1024", "-O", "metadata_csum,64bit"],
        &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum"],
        &["-t", "ext3", "-b", "1024"],
        &["-t", "ext2", "-b", "2048", "-O", "^filetype"],
        &[
            "-t",
            "ext4",
            "-b",
            "65536",
            "-N",
            "4096",
            "-O",
            "metadata_csum",
        ],
    ];
    for (i, args) in features.into_iter().enumerate() {
        let dir = Scratch::new(&format!("contents-{i}"));
        fill(&dir.path("tree"));
        let Some(image) = dir.image(args) else { return };
        let volume = Volume::open(&image);
        let tree = volume.tree();
        let mut files = 0;
        for (path, inode) in &tree {
            let host = dir.path("tree").join(path.trim_start_matches('/'));
            if path.starts_with("/lost+found") {
                continue;
            }
            let meta = fs::metadata(&host).unwrap();
            assert_eq!(u32::from(inode.core.mode), meta.mode(), "{path}");
            if meta.is_file() {
                assert!(volume.content(inode) == fs::read(&host).unwrap(), "{path}");
                files += 1;
            } else {
                let has_types = volume.geo.features.has_filetype();
                let mut names = volume.names(inode);
                assert_eq!(names.remove(&b"."[..]).unwrap().0, inode.nr);
                assert!(names.values().all(|(_, kind)| kind.is_some() == has_types));
            }
        }
        assert_eq!(files, 1509);
        // e2fsck gave the large directory an index wherever it pays.
        let indexed = tree["/d"].core.flags & walk::INDEX != 0;
        assert!(indexed || volume.geo.block_size == 65_536, "{args:?}");
    }
}

/// Rebuilds an indexed directory in the blocks it has, from its names alone.
fn rebuild(volume: &Volume, dir: &walk::Inode) {
    let (blocks, csum) = (volume.dir_blocks(dir), volume.has_csum());
    let mut names = volume.names(dir);
    let (_, parent) = (names.remove(&b"."[..]), names.remove(&b".."[..]).unwrap());
    let hasher = volume.hasher(1);
    let mut sorted: Vec<_> = names
        .iter()
        .map(|(n, (i, t))| (hasher.hash(n), &n[..], *i, *t))
        .collect();
    sorted.sort_by_key(|(hash, ..)| *hash);
    let size = volume.geo.block_size as usize;
    let (total, leaves) = (sorted.len(), blocks.len() - 1);
    // Split by bytes: the hash is seeded at random, so that long names may be adjacent.
    let bytes_of = |names: &[(_, &[u8], _, _)]| -> usize {
        names
            .iter()
            .map(|(_, n, ..)| dir_entry::rec_len_for(n.len()))
            .sum()
    };
    let all = bytes_of(&sorted);
    let mut index = Vec::new();
    let mut rest = &sorted[..];
    for (i, nr) in blocks.iter().enumerate().skip(1) {
        let left = all - all * i / leaves;
        let end = (0..=rest.len())
            .find(|&n| bytes_of(&rest[n..]) <= left)
            .unwrap();
        let part = rest.split_off(..end).unwrap();
        let mut iter = part.iter().map(|(_, n, i, t)| (*n, *i, *t)).peekable();
        let mut block = vec![0xff; size];
        assert_eq!(
            dir_entry::build(&mut block, csum, 0, &mut iter).unwrap(),
            part.len()
        );
        // Editing in place works, too: the last name is removed and inserted.
        let (_, name, ino, kind) = part[part.len() - 1];
        assert_eq!(dir_entry::remove(&mut block, name).unwrap(), Some(ino));
        assert!(dir_entry::insert(&mut block, csum, name, ino, kind).unwrap());
        if csum {
            dir_entry::set_tail(&mut block, dir.seed);
        }
        volume.write(*nr, &block);
        index.push(DxEntry {
            hash: part[0].0.0,
            block: i as u32,
        });
    }
    // The index is flat, because one entry in the root and a level of nodes would need one more block.
    let init = RootInit {
        own: dir.nr,
        parent: parent.0,
        filetype: volume.geo.features.has_filetype(),
        hash_version: hasher.version().stored(),
        levels: 0,
    };
    let mut root = vec![0xff; size];
    htree::write_root(&mut root, &init, csum, index[..2].iter().copied()).unwrap();
    for (i, entry) in index.iter().enumerate().skip(2) {
        assert!(htree::insert_after(&mut root, IndexBlockKind::Root, i - 1, *entry).unwrap());
    }
    if csum {
        htree::set_checksum(&mut root, IndexBlockKind::Root, dir.seed).unwrap();
    }
    volume.write(blocks[0], &root);
    assert_eq!(volume.names(dir).len(), total + 2);
}

#[test]
fn e2fsck_agrees_with_what_is_written() {
    for (i, features) in ["metadata_csum,64bit", "^metadata_csum"]
        .into_iter()
        .enumerate()
    {
        let dir = Scratch::new(&format!("written-{i}"));
        fill(&dir.path("tree"));
        let Some(image) = dir.image(&["-t", "ext4", "-b", "2048", "-I", "256", "-O", features])
        else {
            return;
        };
        for (name, len) in [
            ("a", 3),
            ("much", 700),
            ("b", 20),
            ("zz", 90),
            ("longer-name", 50),
        ] {
            let value = dir.path("value");
            fs::write(&value, vec![b'v'; len]).unwrap();
            debugfs(
                &image,
                &format!("ea_set -f {} /file2 user.{name}", value.display()),
            );
        }
        let volume = Volume::open(&image);
        let tree = volume.tree();
        rebuild(&volume, &tree["/d"]);

        // A tree of another shape for the file with holes: one leaf block under the root.
        let mut holes = volume.inode(tree["/holes"].nr);
        let (nodes, extents) = volume.map(&holes);
        assert!(extents.len() > 4 && nodes.len() == 1);
        let mut leaf = vec![0xff; 2048];
        extent::write_leaf(&mut leaf, 0, []).unwrap();
        for e in extents.iter().rev() {
            assert!(extent::insert_extent(&mut leaf, 0, e).unwrap());
        }
        if volume.has_csum() {
            extent::set_tail(&mut leaf, holes.seed).unwrap();
        }
        volume.write(nodes[0], &leaf);
        let root = extent::ExtentIndex {
            logical: extents[0].logical,
            child: nodes[0],
        };
        extent::write_index(inode::i_block_mut(&mut holes.raw).unwrap(), 1, 0, [root]).unwrap();
        volume.write_inode(&mut holes);

        // The attributes are placed again.
        let mut file = volume.inode(tree["/file2"].nr);
        let mut set = volume.xattrs(&file);
        assert_eq!(set.len(), 5);
        set.set(b"user.b", b"changed").unwrap();
        set.set(b"security.extra", b"123").unwrap();
        set.remove(b"user.a").unwrap();
        let range = inode::xattr_area(&file.raw, &volume.geo).unwrap();
        let (area, block) = xattr::place(&set, range.len(), 2048).unwrap();
        file.raw[range].copy_from_slice(&area.unwrap());
        let (mut block, nr) = (block.unwrap(), inode::file_acl(&file.raw, &volume.geo));
        if volume.has_csum() {
            xattr::set_checksum(&mut block, volume.geo.csum_seed, nr);
        }
        volume.write(nr, &block);
        volume.write_inode(&mut file);

        fsck(&image);
        let list = debugfs(&image, "ea_list /file2");
        assert!(
            list.contains("user.b (7) = \"changed\"") && list.contains("security.extra (3)"),
            "{list}"
        );
        assert!(debugfs(&image, "stat /d").contains("Flags: 0x81000"));
    }
}

/// The journal of an image: its superblock and where its blocks are.
struct Journal<'a> {
    volume: &'a Volume,
    extents: Vec<Extent>,
    sb: Superblock,
}

impl<'a> Journal<'a> {
    fn open(volume: &'a Volume) -> Self {
        let extents = volume.map(&volume.inode(InodeNr::JOURNAL)).1;
        let mut journal = Self {
            volume,
            extents,
            sb: Superblock::new(1024, 1024, Default::default(), [0; 16]),
        };
        journal.sb = Superblock::parse(&journal.block(0)).unwrap();
        journal
    }

    fn home(&self, block: u32) -> BlockNr {
        self.extents.iter().find_map(|e| e.map(block)).unwrap()
    }

    fn block(&self, block: u32) -> Vec<u8> {
        self.volume.block(self.home(block))
    }

    fn plan(&self) -> jbd2::Plan {
        let read = |block| Ok::<_, FormatError>(self.block(block));
        plan(&self.sb, self.volume.geo.blocks_count, read).unwrap()
    }

    /// Returns the content of each block that a replay writes.
    fn result(&self) -> BTreeMap<BlockNr, Vec<u8>> {
        let images = self.plan().replay.into_iter().map(|r| {
            let mut image = self.block(r.log_block);
            if r.escaped {
                jbd2::unescape(&mut image);
            }
            (r.home, image)
        });
        images.collect()
    }
}

/// Returns a fresh journal, with a block that no file uses: past the tree's data.
fn journalled(name: &str, features: &str) -> Option<(Scratch, PathBuf)> {
    let dir = Scratch::new(name);
    let image = dir.image(&["-t", "ext4", "-b", "1024", "-O", features])?;
    Some((dir, image))
}

const FREE: u64 = 20_000;

#[test]
fn journals_of_debugfs_are_understood() {
    for (i, (features, open)) in [
        ("^metadata_csum,^64bit", "jo"),
        ("metadata_csum,64bit", "jo -c"),
        ("64bit,^metadata_csum", "jo -c -v 2"),
    ]
    .into_iter()
    .enumerate()
    {
        let Some((dir, image)) = journalled(&format!("jread-{i}"), features) else {
            return;
        };
        let images: Vec<PathBuf> = (0..3_u8)
            .map(|n| {
                let path = dir.path(&format!("block{n}"));
                let mut bytes = [n + 1; 1024];
                if n == 2 {
                    bytes[..4].copy_from_slice(&jbd2::MAGIC.to_be_bytes());
                }
                fs::write(&path, bytes).unwrap();
                path
            })
            .collect();
        // debugfs sums revoke blocks into v1 checksums, which neither e2fsck nor the kernel does.
        let revokes = open != "jo -c -v 2";
        let script = dir.path("script");
        let jw = |block: u64, n: usize| format!("jw -b {block} {}\n", images[n].display());
        let commands = [
            format!("{open}\n"),
            jw(FREE, 0),
            jw(FREE + 1, 1),
            jw(FREE + 2, 2),
            if revokes {
                format!("jw -r {FREE}\n")
            } else {
                String::new()
            },
            jw(FREE + 1, 0),
            "jc\n".into(),
        ];
        fs::write(&script, commands.concat()).unwrap();
        let args = [
            "-w",
            "-f",
            script.to_str().unwrap(),
            image.to_str().unwrap(),
        ];
        let (_, text) = tool("debugfs", &args).unwrap();
        let volume = Volume::open(&image);
        let journal = Journal::open(&volume);
        let found = journal.plan();
        let transactions = 4 + u32::from(revokes);
        assert_eq!(
            (found.transactions, found.revoked),
            (transactions, revokes.into()),
            "{open}: {text}"
        );
        let result = journal.result();
        assert_eq!(result.contains_key(&BlockNr(FREE)), !revokes);
        assert!(result[&BlockNr(FREE + 1)] == fs::read(&images[0]).unwrap());
        assert!(result[&BlockNr(FREE + 2)] == fs::read(&images[2]).unwrap());
    }
}

#[test]
fn e2fsck_replays_what_is_written() {
    for (i, (features, incompat)) in [
        ("^metadata_csum,^64bit", jbd2::features::Incompat::REVOKE),
        (
            "metadata_csum,64bit",
            Superblock::default_features(true, true).incompat,
        ),
        (
            "^metadata_csum,64bit",
            Superblock::default_features(true, false).incompat | jbd2::features::Incompat::CSUM_V2,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let Some((_dir, image)) = journalled(&format!("jwrite-{i}"), features) else {
            return;
        };
        let mut volume = Volume::open(&image);
        let mut journal = Journal::open(&volume);
        // Close to the end of the log, so that it wraps.
        journal.sb.features.incompat = incompat;
        journal.sb.start = journal.sb.max_len - 4;
        let (format, mut at) = (journal.sb.format(), journal.sb.start);
        let mut push = |bytes: &[u8]| {
            volume.write(journal.home(at), bytes);
            at = journal.sb.next_block(at);
        };
        let mut tid = journal.sb.sequence;
        for round in 0..3_u8 {
            let mut block = vec![0; 1024];
            if round == 2 {
                let mut revoke = RevokeWriter::new(&format, &mut block, tid).unwrap();
                assert!(revoke.push(BlockNr(FREE)).unwrap());
                revoke.finish();
                push(&block);
            }
            let mut descriptor = DescriptorWriter::new(&format, &mut block, tid).unwrap();
            let mut images = Vec::new();
            for n in u64::from(round)..5 {
                let mut image = vec![round * 16 + n as u8; 1024];
                if n == 3 {
                    image[..4].copy_from_slice(&jbd2::MAGIC.to_be_bytes());
                }
                let escaped = jbd2::escape(&mut image);
                let sum = format.image_checksum(tid, &image);
                assert!(descriptor.push(BlockNr(FREE + n), sum, escaped).unwrap());
                images.push(image);
            }
            descriptor.finish();
            push(&block);
            images.iter().for_each(|image| push(image));
            let commit = Commit {
                tid,
                secs: 1_700_000_000 + u64::from(round),
                nanos: 0,
                transaction_crc: None,
            };
            commit.write(&format, &mut block).unwrap();
            push(&block);
            tid = tid.next();
        }
        let mut block = journal.block(0);
        journal.sb.write(&mut block).unwrap();
        volume.write(journal.home(0), &block);
        let (expected, found) = (journal.result(), journal.plan());
        assert_eq!((found.transactions, found.revoked, found.head), (3, 1, at));
        assert_eq!(found.end, LogEnd::Other(at));
        assert_eq!(expected.len(), 4);

        const NEEDS_RECOVERY: u32 = 4;
        let incompat = volume.raw_sb.feature_incompat.get() | NEEDS_RECOVERY;
        volume.raw_sb.feature_incompat.set(incompat);
        volume.raw_sb.set_checksum();
        use std::os::unix::fs::FileExt;
        volume
            .file
            .write_all_at(volume.raw_sb.bytes(), 1024)
            .unwrap();
        let (code, text) = tool("e2fsck", &["-fy", image.to_str().unwrap()]).unwrap();
        assert!(
            code <= 1 && text.contains("recovering journal"),
            "{code} {text}"
        );
        assert!(!text.to_lowercase().contains("corrupt"), "{text}");
        for (home, image) in expected {
            assert!(
                volume.block(home) == image,
                "block {home} after e2fsck's replay"
            );
        }
        assert_eq!(
            volume.block(BlockNr(FREE)),
            [0; 1024],
            "revoked, yet replayed"
        );
        let after = Journal::open(&volume);
        assert!(after.sb.is_clean());
    }
}
