//! Bases with every feature of mke2fs and Linux, populated by Linux, some of them cut during writes.

use crate::it::debugfs::Image;
use crate::it::mounted::Mounted;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// How a base is made.
pub struct BaseKind {
    pub name: &'static str,
    size: &'static str,
    block: u64,
    args: &'static [&'static str],
    made: Origin,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// By Linux, and unmounted.
    Mounted,
    /// By Linux, and copied while transactions are in the journal.
    Cut,
    /// As `Cut`, with transactions whose commit blocks have the first version of checksums.
    CutVersion1,
    /// By Linux; then debugfs adds a transaction of the second version of checksums, which Linux no longer writes.
    Journaled,
    /// By mke2fs from a tree: Linux does not mount such blocks.
    FromTree,
}

impl BaseKind {
    /// Returns whether Linux can mount and change a base, which has all directories.
    pub fn is_changed_by_linux(&self) -> bool {
        self.made == Origin::Mounted && self.name != "few inodes"
    }
}

macro_rules! kinds {
    ($($name:literal $size:literal $block:literal $made:ident $args:expr;)*) => {
        pub const KINDS: &[BaseKind] = &[$(BaseKind {
            name: $name,
            size: $size,
            block: $block,
            args: $args,
            made: Origin::$made,
        }),*];
    };
}

kinds! {
    "inline_data" "16M" 4096 Mounted &["-O", "inline_data"];
    "inline_data, 1 KiB" "8M" 1024 Mounted &["-O", "inline_data,^has_journal"];
    "inline_data without checksums" "8M" 1024 Mounted &["-O", "inline_data,^metadata_csum,^metadata_csum_seed"];
    "ea_inode" "16M" 1024 Mounted &["-O", "ea_inode"];
    "ea_inode, pending" "16M" 4096 Cut &["-O", "ea_inode"];
    "bigalloc" "32M" 4096 Mounted &["-C", "65536", "-O", "bigalloc"];
    "bigalloc, 1 KiB" "16M" 1024 Mounted &["-C", "16384", "-O", "bigalloc,^resize_inode,^metadata_csum,^metadata_csum_seed"];
    "encrypt" "16M" 4096 Mounted &["-O", "encrypt"];
    "casefold" "16M" 4096 FromTree &["-O", "casefold"];
    "verity" "16M" 4096 Mounted &["-O", "verity"];
    "quota, project" "16M" 4096 FromTree &["-O", "quota,project", "-E", "quotatype=usrquota:grpquota:prjquota"];
    "quota, ea_inode" "16M" 4096 FromTree &["-O", "quota,ea_inode"];
    "one quota" "16M" 1024 FromTree &["-O", "quota", "-E", "quotatype=usrquota"];
    "mmp" "16M" 4096 Mounted &["-O", "mmp", "-E", "mmp_update_interval=1"];
    "fast commits" "32M" 4096 Cut &["-O", "fast_commit"];
    "pending, version 3" "16M" 4096 Cut &["-O", "metadata_csum,64bit"];
    "pending, 32 bits" "16M" 1024 Cut &["-O", "metadata_csum,^64bit"];
    "pending, no checksums" "16M" 1024 Cut &["-O", "^metadata_csum,^metadata_csum_seed,^64bit"];
    "pending, version 1" "16M" 1024 CutVersion1 &["-O", "^metadata_csum,^metadata_csum_seed,64bit"];
    "pending, version 2" "16M" 1024 Journaled &["-O", "metadata_csum,64bit"];
    "meta_bg" "16M" 1024 Mounted &["-O", "meta_bg,^resize_inode"];
    "sparse_super2" "16M" 1024 Mounted &["-O", "sparse_super2,^resize_inode"];
    "tiny groups" "8M" 1024 Mounted &["-g", "512", "-N", "512", "-O", "^has_journal"];
    "full groups" "32M" 1024 Mounted &["-N", "32768", "-O", "^flex_bg"];
    "few inodes" "32M" 1024 Mounted &["-N", "64", "-O", "^flex_bg,^has_journal"];
    "group checksums" "16M" 2048 Mounted &["-O", "uninit_bg,^metadata_csum,^metadata_csum_seed"];
    "orphan file" "16M" 4096 Mounted &["-O", "orphan_file,large_dir,stable_inodes"];
    "small inodes" "8M" 1024 Mounted &["-I", "128", "-O", "^metadata_csum,^metadata_csum_seed"];
    "ext3" "8M" 1024 Mounted &["-O", "^extent,^flex_bg,^metadata_csum,^metadata_csum_seed,^huge_file,^64bit"];
    "64 KiB blocks" "80M" 65536 FromTree &["-O", "^has_journal"];
    "16 KiB blocks" "64M" 16384 FromTree &["-O", "inline_data"];
}

/// Makes a base, or says why it cannot be made here.
pub fn make(kind: &BaseKind) -> Result<Image, String> {
    if kind.made == Origin::FromTree {
        let tree = needs::memory_dir();
        populate(tree.path(), kind)?;
        let from = tree.path().to_str().unwrap().to_owned();
        let args = [kind.args, &["-d", &from]].concat();
        let image = Image::new(kind.size, kind.block, &args);
        if kind.name == "quota, ea_inode" {
            // mke2fs leaves copied files out of the quota files.
            image.run("e2fsck", &["-fy"]);
        }
        if kind.name == "casefold" {
            image.change(&["sif dir-0 flags 0x40080000"]);
            image.run("e2fsck", &["-fy"]);
        }
        return Ok(image);
    }
    let image = Image::new(kind.size, kind.block, kind.args);
    let options = match kind.made {
        Origin::Cut => "commit=300",
        Origin::CutVersion1 => "commit=300,journal_checksum",
        _ => "",
    };
    let mounted = Mounted::try_new(&image.path(), options)?;
    populate(mounted.path(), kind)?;
    if matches!(kind.made, Origin::Mounted | Origin::Journaled) {
        mounted.unmount();
        if kind.made == Origin::Journaled {
            add_transaction(&image);
        }
        return Ok(image);
    }
    let work = mounted.path().join("work");
    std::fs::create_dir(&work).unwrap();
    rustix::fs::syncfs(File::open(&work).unwrap()).unwrap();
    for n in 0..12u8 {
        let mut file = File::create(work.join(format!("synced-{n}"))).unwrap();
        file.write_all(&vec![n; 700 * usize::from(n)]).unwrap();
        file.sync_all().unwrap();
        if n % 4 == 3 {
            std::fs::remove_file(work.join(format!("synced-{}", n - 1))).unwrap();
            std::fs::create_dir(work.join(format!("dir-{n}"))).unwrap();
            File::open(&work).unwrap().sync_all().unwrap();
        }
    }
    let copy = image.path().with_extension("cut");
    std::fs::copy(image.path(), &copy).unwrap();
    mounted.unmount();
    std::fs::rename(copy, image.path()).unwrap();
    Ok(image)
}

/// Adds a transaction that rewrites the blocks of the root directory unchanged.
fn add_transaction(image: &Image) {
    let bytes = std::fs::read(image.path()).unwrap();
    let mut content = Vec::new();
    let blocks = image.blocks("/");
    for &block in &blocks {
        let at = (block * image.block) as usize;
        content.extend_from_slice(&bytes[at..at + image.block as usize]);
    }
    let content = image.beside("transaction", &content);
    let blocks: Vec<_> = blocks.iter().map(u64::to_string).collect();
    let write = format!("jw -b {} {}", blocks.join(","), content.display());
    let requests = format!("jo -c -v 2\n{write}\njc\n");
    let script = image.beside("requests", requests.as_bytes());
    image.run("debugfs", &["-w", "-f", &script.display().to_string()]);
    assert!(image.ask("features").contains("needs_recovery"));
}

/// Creates files of every kind.
fn populate(root: &Path, kind: &BaseKind) -> Result<(), String> {
    let few = kind.name == "few inodes";
    let names = if few { 5 } else { 120 };
    std::fs::create_dir(root.join("big")).unwrap();
    for n in 0..names {
        std::fs::write(root.join(format!("big/{n:0>50}")), format!("{n}")).unwrap();
    }
    for d in 0..if few { 1 } else { 4 } {
        let dir = root.join(format!("dir-{d}"));
        std::fs::create_dir_all(dir.join("below/deep")).unwrap();
        for n in 0..4usize {
            std::fs::write(
                dir.join(format!("file-{n}")),
                vec![b'a' + n as u8; n * 1700 + 30],
            )
            .unwrap();
        }
        std::fs::write(dir.join("below/deep/inside"), [b'i'; 100]).unwrap();
        std::fs::hard_link(dir.join("file-1"), dir.join("second")).unwrap();
        symlink("short", dir.join("fast")).unwrap();
        symlink("x".repeat(90), dir.join("slow")).unwrap();
        let value = "v".repeat(if kind.name.contains("ea_inode") {
            3000
        } else {
            300
        });
        if kind.made != Origin::FromTree || kind.name == "quota, ea_inode" {
            run(
                "setfattr",
                &["-n", "user.large", "-v", &value],
                &dir.join("file-2"),
            )?;
            run(
                "setfattr",
                &["-n", "user.small", "-v", "s"],
                &dir.join("file-3"),
            )?;
        }
    }
    // An extent tree of two levels.
    let mut spread = File::create(root.join("spread")).unwrap();
    for n in 0..if few { 3u64 } else { 30 } {
        spread.seek(SeekFrom::Start(n * 3 * kind.block)).unwrap();
        spread.write_all(&[b's'; 700]).unwrap();
    }
    Ok(())
}

fn run(tool: &str, args: &[&str], path: &Path) -> Result<(), String> {
    let out = Command::new(tool).args(args).arg(path).output();
    let out = out.map_err(|error| format!("{tool}: {error}"))?;
    if out.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&out.stderr).into_owned())
    }
}
