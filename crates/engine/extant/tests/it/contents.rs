//! Contents of synced and of unsynced files after one, two and three cuts. The rules are in the module `judge` of `extant-testing`.

use crate::common;
use crate::judge;
use common::*;
use judge::campaign::{CampaignKind, over_the_library, run};

const ONE: CampaignKind = CampaignKind {
    name: "one task, blocks of 4 KiB",
    size: "16M",
    mke2fs: &["-t", "ext4", "-J", "size=4"],
    block: 4096,
    tasks: 1,
    ops: 40,
    in_parts: None,
    rounds: 3,
    cuts: 12,
    flush: 0,
    over: over_the_library,
};

const SMALL_BLOCKS: CampaignKind = CampaignKind {
    name: "one task, blocks of 1 KiB",
    mke2fs: &["-t", "ext4", "-b", "1024", "-J", "size=1"],
    size: "8M",
    block: 1024,
    ..ONE
};

const IN_PARTS: CampaignKind = CampaignKind {
    name: "one task, contexts in parts",
    in_parts: Some(14),
    ..SMALL_BLOCKS
};

const TASKS: CampaignKind = CampaignKind {
    name: "three tasks, blocks of 4 KiB",
    tasks: 3,
    ops: 28,
    flush: 200,
    ..ONE
};

const TASKS_IN_PARTS: CampaignKind = CampaignKind {
    name: "three tasks, contexts in parts",
    tasks: 3,
    ops: 28,
    ..IN_PARTS
};

const FAST: CampaignKind = CampaignKind {
    name: "one task, fast commits",
    size: "16M",
    mke2fs: &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "fast_commit",
        "-J",
        "size=2",
    ],
    ..SMALL_BLOCKS
};

const FAST_TASKS: CampaignKind = CampaignKind {
    name: "three tasks, fast commits",
    tasks: 3,
    ops: 28,
    flush: 200,
    ..FAST
};

#[test]
fn fast_commits() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    run(&[FAST, FAST_TASKS], seeds(1, 5, 200));
}

#[test]
fn one_task() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    run(&[ONE, SMALL_BLOCKS, IN_PARTS], seeds(1, 5, 200));
}

#[test]
fn tasks_that_join() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    run(&[TASKS, TASKS_IN_PARTS], seeds(1, 5, 200));
}
