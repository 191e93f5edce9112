//! Mappings that need blocks on a full volume.

use crate::common::*;
use crate::full::filling::*;
use extant::Fallocate;
use std::collections::BTreeMap;

/// Free space in single blocks: every write makes extents of one block, so metadata grow as fast as data.
fn fragmented(args: &[&str]) {
    needs::tools!("mke2fs", "e2fsck");
    let device = mem_image("12M", args);
    let v = open(&device);
    let bs = v.geometry().block_size as usize;
    let mut small = Vec::new();
    for n in 0.. {
        let path = format!("/s{n}");
        if !fits(v.write(&path, content(n, bs)), "small file") {
            let _ = v.remove_file(&path);
            break;
        }
        small.push(path);
        if n % 500 == 499 {
            v.sync().unwrap();
        }
    }
    v.sync().unwrap();
    for path in small.iter().step_by(2) {
        v.remove_file(path).unwrap();
    }
    v.sync().unwrap();
    // Sparse writes, so that runs merge neither logically.
    let mut kept = BTreeMap::new();
    'files: for n in 0..40u64 {
        let path = format!("/frag{n}");
        if !fits(v.create_new_file(&path), "create") {
            break;
        }
        let file = v.open_file_with(&path, &RW).unwrap();
        let mut bytes = Vec::new();
        for piece in 0..200usize {
            let data = content(n * 1000 + piece as u64, bs);
            let fit = fits(
                file.write_at(&data, (piece * 2 * bs) as u64),
                "sparse write",
            );
            if fit {
                bytes.resize(piece * 2 * bs, 0);
                bytes.extend(data);
            } else {
                kept.insert(path.clone(), bytes);
                break 'files;
            }
        }
        kept.insert(path, bytes);
    }
    v.sync().expect("write-back of what was accepted");
    v.drop_caches();
    intact(&v, &kept, "fragmented");
    v.close().unwrap();
    assert_clean(&device, "fragmented and full");
    let v = open(&device);
    intact(&v, &kept, "fragmented, reopened");
    // Punching needs new extent blocks on a full volume. It fails with NoSpace or is done completely.
    for path in kept.keys() {
        let file = v.open_file_with(path, &RW).unwrap();
        fits(
            file.fallocate(Fallocate::PunchHole, bs as u64 * 8, bs as u64),
            "punch",
        );
    }
    v.sync().unwrap();
    for path in kept.keys().chain(small.iter().skip(1).step_by(2)) {
        v.remove_file(path).unwrap();
    }
    v.close().unwrap();
    assert_clean(&device, "fragmented, emptied");
}

#[test]
fn fragmented_extents() {
    fragmented(&["-t", "ext4", "-b", "1024", "-N", "8192", "-J", "size=1"]);
}

#[test]
fn fragmented_block_maps() {
    fragmented(&["-t", "ext3", "-b", "1024", "-N", "8192", "-J", "size=1"]);
}

/// Single blocks far apart in many files: the mapping takes more blocks than the data. Write-back has room for all
/// data that write accepted.
fn sparse(args: &[&str], far: &[u64]) {
    needs::tools!("mke2fs", "e2fsck");
    for sync_every in [1, 20, usize::MAX] {
        let device = mem_image("8M", args);
        let v = open(&device);
        let bs = u64::from(v.geometry().block_size);
        let mut kept = BTreeMap::new();
        'full: for n in 0..3000u64 {
            let path = format!("/sparse{n}");
            if !fits(v.create_new_file(&path), "create") {
                break;
            }
            let file = v.open_file_with(&path, &RW).unwrap();
            for &block in far {
                let data = content(n, bs as usize);
                if !fits(file.write_at(&data, block * bs), "write far away") {
                    break 'full;
                }
                kept.insert((path.clone(), block * bs), data);
            }
            if n as usize % sync_every == sync_every - 1 {
                v.sync().expect("write-back of what was accepted");
            }
        }
        assert!(kept.len() > 500, "{args:?}: only {} writes fit", kept.len());
        v.sync().expect("write-back of what was accepted");
        v.close().unwrap();
        assert_clean(&device, "sparse");
        let v = open(&device);
        for ((path, at), data) in &kept {
            let mut found = vec![0; data.len()];
            v.open_file(path).unwrap().read_at(&mut found, *at).unwrap();
            assert!(found == *data, "{path} at {at}");
        }
    }
}

#[test]
fn sparse_block_maps() {
    sparse(
        &["-t", "ext2", "-b", "1024", "-N", "4000"],
        &[5, 20, 300, 70_000],
    );
    sparse(
        &["-t", "ext3", "-b", "1024", "-N", "4000", "-J", "size=1"],
        &[70_000],
    );
}

#[test]
fn sparse_extents() {
    let far: Vec<u64> = (0..9).map(|n| n * 1000).collect();
    sparse(
        &["-t", "ext4", "-b", "1024", "-N", "2000", "-J", "size=1"],
        &far,
    );
}
