//! Random operations against a reference model, over every kind of image. Each result is compared, and the whole tree
//! at the end and after reopening. At last e2fsck checks the image. A failing sequence is shrunk before it is shown.

use crate::common;
use crate::reference;
mod compare;
mod ops;
mod step;

use blockdev::MemDevice;
use common::*;
use compare::compare;
use ops::{Generator, Op, bulk_name};
use reference::{Model, NodeKind};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use step::{Subject, step};

/// Runs a sequence on a fresh copy of the image. Panics if the volume and the model differ.
fn run(base: &MemDevice, model: &Model, ops: &[Op]) {
    let device = Arc::new(base.snapshot());
    let mut model = model.clone();
    let mut subject = Subject {
        volume: Some(open(&device)),
        device,
        held: Default::default(),
    };
    for (n, op) in ops.iter().enumerate() {
        NOW.set(n);
        step(op, &mut subject, &mut model);
    }
    NOW.set(ops.len());
    compare(subject.volume(), &model);
    subject.reopen(&model);
    compare(subject.volume(), &model);
    subject.close();
    assert_clean(&subject.device, "at the end");
}

thread_local! {
    /// Number of the operation that runs, for the report.
    static NOW: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn fails(base: &MemDevice, model: &Model, ops: &[Op]) -> Option<String> {
    let caught = catch_unwind(AssertUnwindSafe(|| run(base, model, ops))).err()?;
    let text = caught
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| caught.downcast_ref::<&str>().map(|s| s.to_string()))
        .unwrap_or_else(|| "panic".into());
    Some(format!("operation {}: {text}", NOW.get()))
}

/// Leaves out operations that the failure does not need.
fn shrink(base: &MemDevice, model: &Model, mut ops: Vec<Op>) -> Vec<Op> {
    // Operations after the failure never matter.
    ops.truncate(NOW.get() + 1);
    let mut piece = ops.len().div_ceil(2);
    let mut tries = 0;
    while piece > 0 {
        let mut at = 0;
        while at < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + piece).min(fewer.len()));
            tries += 1;
            if tries > 600 {
                return ops;
            }
            if fails(base, model, &fewer).is_some() {
                ops = fewer;
            } else {
                at += piece;
            }
        }
        piece /= 2;
    }
    ops
}

/// The sequence of a seed: made against the model alone.
fn sequence(model: &Model, seed: u64, len: usize) -> Vec<Op> {
    let device = Model::clone(model);
    let mut made = Vec::with_capacity(len);
    let mut state = device;
    let mut generator = Generator::new(seed);
    for _ in 0..len {
        let op = generator.next(&state);
        dry_run(&op, &mut state);
        made.push(op);
    }
    made
}

/// Applies an operation to the names, so that the next operations meet them.
fn dry_run(op: &Op, m: &mut Model) {
    let _ = match op {
        Op::Open {
            path,
            create,
            exclusive,
            cut,
            mode,
        } => m.open(path, *create, *exclusive, *cut, *mode).map(drop),
        Op::Link { old, new } => m.hard_link(old, new),
        Op::Unlink { path } => m.remove_file(path),
        Op::Mkdir { path, mode } => m
            .make(
                path,
                NodeKind::Dir {
                    names: BTreeMap::new(),
                    parent: 0,
                },
                *mode,
            )
            .map(drop),
        Op::Rmdir { path } => m.rmdir(path),
        Op::Rename { old, new, mode } => m.rename_with(old, new, *mode),
        Op::Symlink { target, path } => m
            .make(path, NodeKind::Symlink(target.clone()), 0o777)
            .map(drop),
        Op::Mknod {
            path,
            file_type,
            rdev,
            mode,
        } => m
            .make(path, NodeKind::Special(*file_type, *rdev), *mode)
            .map(drop),
        Op::Bulk {
            dir,
            first,
            count,
            remove,
        } => {
            for n in *first..first + count {
                let path = format!("{dir}/{}", bulk_name(n));
                let _ = if *remove {
                    m.remove_file(&path)
                } else {
                    m.open(&path, true, true, false, 0o600).map(drop)
                };
            }
            Ok(())
        }
        _ => Ok(()),
    };
}

fn check(kind: &str, args: &[&str]) {
    needs::tools!("mke2fs", "e2fsck");
    let base = mem_image("48M", args);
    let geometry = open(&base).geometry().clone();
    // Opening marks the image; every run starts from the same one.
    let base = mem_image("48M", args);
    let mut model = Model::new(geometry.features.has_extents(), geometry.inode_size == 128);
    model.block_size = geometry.block_size.into();
    let len = if torture() { 500 } else { 160 };
    // Every kind has separate sequences.
    let own = kind
        .bytes()
        .fold(0u64, |n, b| n * 31 % 9_973 + u64::from(b))
        * 100_000;
    for seed in seeds(own + 1, 24, 1_000) {
        let ops = sequence(&model, seed, len);
        if let Some(why) = fails(&base, &model, &ops) {
            let ops = shrink(&base, &model, ops);
            let again = fails(&base, &model, &ops).unwrap_or_else(|| "does not fail again".into());
            let list: Vec<String> = ops.iter().map(|o| format!("    {o:?}")).collect();
            panic!(
                "{kind}, seed {seed}: {why}\nshrunk to {} operations: {again}\n{}",
                ops.len(),
                list.join("\n")
            );
        }
    }
}

macro_rules! kinds {
    ($($name:ident: $($arg:expr),*;)*) => { $(
        #[test]
        fn $name() {
            check(stringify!($name), &[$($arg),*]);
        }
    )* };
}

/// Contexts of a few operations each do not fit the journal, so all are written in parts.
#[test]
fn in_parts() {
    IN_PARTS.set(Some(20));
    check(
        "in_parts",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-J",
            "size=4",
            "-O",
            "orphan_file",
        ],
    );
    check(
        "in_parts_ext3",
        &["-t", "ext3", "-b", "1024", "-J", "size=4"],
    );
}

kinds! {
    ext4: "-t", "ext4", "-J", "size=4";
    ext4_small_blocks: "-t", "ext4", "-b", "1024", "-J", "size=4";
    ext4_2k_blocks: "-t", "ext4", "-b", "2048", "-J", "size=4";
    no_metadata_csum_no_64bit: "-t", "ext4", "-J", "size=4", "-O", "^metadata_csum,^64bit";
    no_journal: "-t", "ext4", "-O", "^has_journal";
    no_extents: "-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "^extent,^64bit";
    ext3: "-t", "ext3", "-J", "size=4";
    ext2: "-t", "ext2", "-b", "1024";
    small_inodes: "-t", "ext4", "-I", "128", "-J", "size=4";
    uninit_bg: "-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "^metadata_csum,uninit_bg";
    meta_bg: "-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "meta_bg,^resize_inode";
    sparse_super2: "-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "sparse_super2";
    large_dir: "-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "large_dir";
    no_dir_index: "-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "^dir_index";
    no_filetype: "-t", "ext4", "-J", "size=4", "-O", "^filetype";
    no_flex_bg: "-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "^flex_bg";
    no_huge_file: "-t", "ext4", "-J", "size=4", "-O", "^huge_file";
    no_ext_attr: "-t", "ext4", "-J", "size=4", "-O", "^ext_attr";
    no_dir_nlink: "-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "^dir_nlink";
    no_large_file: "-t", "ext4", "-J", "size=4", "-O", "^large_file,^resize_inode";
    no_sparse_super: "-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "^sparse_super,^resize_inode";
    no_extra_isize: "-t", "ext4", "-J", "size=4", "-O", "^extra_isize";
    newest_features: "-t", "ext4", "-J", "size=4", "-O", "metadata_csum_seed,orphan_file";
    orphan_file_small_blocks: "-t", "ext4", "-b", "1024", "-J", "size=4", "-O", "orphan_file";
}
