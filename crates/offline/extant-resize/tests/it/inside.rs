//! Directories with names inside their inodes (`inline_data`), and values of attributes in inodes (`ea_inode`): both hold numbers of
//! inodes, which change if the groups of those inodes go away.

use crate::it::image::{fragmented, tree};
use crate::it::shapes::{MIB, cut_everywhere, inode_plan, plan, resized};
use crate::it::verdict;
use blockdev::MemDevice;
use ext4_format::InodeNr;
use ext4_format::inode::value;
use ext4_image::Image;
use extant_resize::NewSize;
use extant_testing::common::{load_image, write_image};
use std::fmt::Write;
use std::process::Command;

/// Runs debugfs and returns its output.
fn debugfs(device: &MemDevice, requests: &str) -> (MemDevice, String) {
    let dir = needs::memory_dir();
    let (path, file) = (dir.path().join("image"), dir.path().join("requests"));
    write_image(device, &path);
    std::fs::write(&file, requests).unwrap();
    let mut debugfs = Command::new("debugfs");
    let out = debugfs.arg("-w").arg("-f").arg(&file).arg(&path).output();
    let text = String::from_utf8_lossy(&out.unwrap().stdout).into_owned();
    (load_image(&path), text)
}

/// Returns a volume of small directories in all its groups.
fn filled(args: &[&str], requests: &str) -> MemDevice {
    let dir = needs::memory_dir();
    let (from, path) = (dir.path().join("tree"), dir.path().join("image"));
    // mke2fs takes the names in their order, so that the first inodes become free.
    let mut requests = requests.to_owned();
    let mut removed = |name: &str| {
        std::fs::create_dir_all(from.join(name)).unwrap();
        for n in 0..200 {
            std::fs::write(from.join(format!("{name}/{n}")), "").unwrap();
            writeln!(requests, "rm {name}/{n}").unwrap();
        }
    };
    removed("a");
    for n in 0..60 {
        let below = from.join(format!("d{n}/below/deep"));
        std::fs::create_dir_all(&below).unwrap();
        for i in 0..n % 5 {
            std::fs::write(below.join(format!("f{i}")), vec![b'f'; i * 40]).unwrap();
        }
        std::fs::write(from.join(format!("d{n}/file")), vec![b'd'; 3000]).unwrap();
    }
    removed("z");
    let mut mke2fs = Command::new("mke2fs");
    mke2fs
        .args(["-q", "-F", "-t", "ext4", "-b", "1024", "-g", "1024"])
        .args(["-N", "1200", "-J", "size=1", "-d"]);
    let made = mke2fs.arg(&from).args(args).arg(&path).arg("24M").output();
    let made = made.unwrap();
    assert!(made.status.success(), "{made:?}");
    let device = debugfs(&load_image(&path), &requests).0;
    // debugfs leaves counts of blocks to e2fsck.
    mended(&device)
}

/// Returns the volume after `e2fsck -fy`.
fn mended(device: &MemDevice) -> MemDevice {
    let dir = needs::memory_dir();
    let path = dir.path().join("image");
    write_image(device, &path);
    let mut e2fsck = Command::new("e2fsck");
    let mended = e2fsck.arg("-fy").arg(&path).output().unwrap();
    assert!(mended.status.code().is_some_and(|code| code < 4));
    load_image(&path)
}

/// Returns the value of the attribute of each file.
fn values(device: &MemDevice) -> String {
    let mut requests = String::new();
    for n in 0..60 {
        writeln!(requests, "ea_get d{n}/file user.large").unwrap();
        writeln!(requests, "ea_get d{n}/below user.small").unwrap();
    }
    debugfs(device, &requests).1
}

#[test]
fn inodes_get_other_numbers_in_names_and_attributes_inside_inodes() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let dir = needs::memory_dir();
    let large = dir.path().join("value");
    std::fs::write(&large, [b'v'; 5000]).unwrap();
    let mut attributes = String::new();
    for n in 0..60 {
        let large = large.display();
        writeln!(attributes, "ea_set -f {large} d{n}/file user.large").unwrap();
        writeln!(attributes, "ea_set d{n}/below user.small s{n}").unwrap();
    }
    for (args, requests) in [
        (["-O", "inline_data"], ""),
        (["-O", "inline_data,^metadata_csum"], ""),
        (["-O", "ea_inode"], &attributes),
        (["-O", "ea_inode,inline_data,^flex_bg"], &attributes),
        (["-O", "ea_inode,^metadata_csum"], &attributes),
    ] {
        let what = args[1];
        let device = filled(&args, requests);
        let (files, attributes) = (tree(&device), values(&device));
        // debugfs prints the beginning of a long value.
        assert_eq!(attributes.contains(&"v".repeat(1000)), !requests.is_empty());
        let smaller = plan(&device, NewSize::Least, None).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(smaller.renumbered > 40, "{what}: {}", smaller.renumbered);
        let least = resized(&device, NewSize::Least, None, what);
        let again = resized(&least, NewSize::Bytes(40 * MIB), None, what);
        for device in [&least, &again] {
            assert!(tree(device) == files, "{what}");
            assert!(values(device) == attributes, "{what}");
        }
        if what == "ea_inode,inline_data,^flex_bg" {
            cut_everywhere(&device, &smaller, 10);
        }
    }
}

/// A value that Lustre made has the number and the generation of its file, and equal times.
#[test]
fn a_value_that_lustre_made_keeps_the_number_of_its_file() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let dir = needs::memory_dir();
    let large = dir.path().join("value");
    std::fs::write(&large, [b'v'; 5000]).unwrap();
    let request = format!("ea_set -f {} d50/file user.large\n", large.display());
    let device = filled(&["-O", "ea_inode"], &request);
    let stat = debugfs(&device, "stat d50/file\n").1;
    let file = stat.split("Inode: ").nth(1).unwrap();
    let file: u32 = file.split_whitespace().next().unwrap().parse().unwrap();
    let mut image = Image::open(&device).unwrap();
    image.read_descriptors().unwrap();
    let generation = image.read_record(InodeNr(file)).unwrap().unwrap()[100..104].to_vec();
    let numbers = (1..1200).map(InodeNr);
    let mut records = numbers.map(|ino| (ino, image.read_record(ino).unwrap().unwrap()));
    let (ino, mut raw) = records.find(|(_, raw)| value::is_value(raw)).unwrap();
    value::set_hash(&mut raw, 1000);
    value::set_references(&mut raw, 1000 << 32);
    raw[16..20].copy_from_slice(&file.to_le_bytes());
    raw[100..104].copy_from_slice(&generation);
    image.write_record(ino, &mut raw).unwrap();
    let device = mended(&device);
    let error = plan(&device, NewSize::Least, None).unwrap_err().to_string();
    assert!(error.contains("that Lustre made"), "{error}");
    resized(&device, NewSize::Bytes(40 * MIB), None, "larger");
}

/// The original revision has inodes of 128 bytes.
#[test]
fn larger_inodes_make_the_revision_dynamic() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    let device = MemDevice::from_bytes(&fragmented("8M", &["-r", "0"]).unwrap());
    let files = tree(&device);
    let plan = inode_plan(&device, 256).unwrap();
    plan.write(&device, None, None).unwrap();
    assert!(tree(&device) == files);
    assert!(verdict::judge(&device).0);
    let stats = debugfs(&device, "stats\n").1;
    assert!(stats.contains("(dynamic)"), "{stats}");
    assert!(stats.contains("Inode size:\t          256"), "{stats}");
}
