//! Files that are not images, or not images for this engine: refused, or opened for reading, with the name of the
//! reason.

use crate::common::*;
use crate::image::{open_as, populate};
use blockdev::{Access, BlockDevice, FileDevice, MemDevice};
use ext4_format::geometry::Geometry;
use extant::mkfs::MkfsOptions;
use extant::{Error, RenameMode, Volume, VolumeOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

#[test]
fn no_image_at_all() {
    for (what, bytes) in [
        ("empty", vec![]),
        ("one byte", vec![1]),
        ("zeros", vec![0; 1 << 20]),
        ("ones", vec![0xff; 1 << 20]),
        ("text", b"this is not an image. ".repeat(10_000)),
    ] {
        for read_only in [true, false] {
            let result = open_as(&Arc::new(MemDevice::from_bytes(&bytes)), read_only);
            match result {
                Err(Error::Format(e)) => assert!(!e.to_string().is_empty()),
                Err(e) => panic!("{what}: {e:?} instead of an error of the format"),
                Ok(_) => panic!("{what}: opens"),
            }
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("empty");
    std::fs::write(&path, b"").unwrap();
    assert!(VolumeOptions::new().open(&path).is_err());
    assert!(
        VolumeOptions::new().open(dir.path()).is_err(),
        "a directory is not an image"
    );
    assert!(VolumeOptions::new().open(dir.path().join("none")).is_err());
}

/// An image that cannot be opened or made has the errno of the system, and not that of a failing device.
#[test]
fn the_system_says_why_an_image_does_not_open() {
    use rustix::io::Errno;
    fn errno<T>(result: extant::Result<T>) -> Errno {
        Errno::from_raw_os_error(result.err().expect("it fails").errno())
    }
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let size = MkfsOptions {
        size: Some(16 << 20),
        ..Default::default()
    };
    let volume = Volume::create(&image, &size).unwrap();
    assert_eq!(errno(Volume::open(&image)), Errno::BUSY);
    volume.close().unwrap();
    assert_eq!(errno(Volume::create(&image, &size)), Errno::EXIST);
    let below = image.join("below");
    for read_only in [false, true] {
        let open = |path: &Path| errno(VolumeOptions::new().read_only(read_only).open(path));
        assert_eq!(open(&dir.path().join("none")), Errno::NOENT);
        assert_eq!(open(dir.path()), Errno::ISDIR);
        assert_eq!(open(&below), Errno::NOTDIR);
    }
    assert_eq!(
        errno(Volume::create(dir.path().join("none/image"), &size)),
        Errno::NOENT
    );
    let given = |path: &Path| FileDevice::open(path, Access::ReadOnly).map_err(Error::from);
    assert_eq!(errno(given(&below)), Errno::NOTDIR);
    // The directory belongs to the user who runs the tests; a thread may be somebody else.
    let locked = dir.path().join("locked");
    std::fs::create_dir(&locked).unwrap();
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o000)).unwrap();
    let denied = std::thread::scope(|s| {
        let open = || {
            let nobody = rustix::process::Uid::from_raw(65534);
            let _ = rustix::thread::set_thread_res_uid(nobody, nobody, nobody);
            errno(Volume::open(locked.join("image")))
        };
        s.spawn(open).join().unwrap()
    });
    assert_eq!(denied, Errno::ACCESS);
    std::fs::remove_dir(&locked).unwrap();
}

#[test]
fn truncated_images() {
    needs::tools!("mke2fs");
    let base = populate(&["-t", "ext4", "-b", "1024", "-J", "size=1"], false)
        .to_bytes()
        .unwrap();
    for len in [
        1024,
        1500,
        2048,
        3000,
        10_000,
        100_000,
        1 << 20,
        base.len() / 2,
        base.len() - 1024,
        base.len() - 1,
    ] {
        for read_only in [true, false] {
            let device = Arc::new(MemDevice::from_bytes(&base[..len]));
            let error = open_as(&device, read_only)
                .err()
                .unwrap_or_else(|| panic!("{len} bytes open"));
            assert!(matches!(error, Error::Format(_)), "{len} bytes: {error:?}");
        }
    }
}

/// The primary superblock is gone: a backup is used, for reading only.
#[test]
fn zeroed_superblock() {
    needs::tools!("mke2fs");
    for args in [
        &["-t", "ext4", "-b", "1024", "-J", "size=1"][..],
        &["-t", "ext2", "-b", "1024"],
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "sparse_super2",
            "-J",
            "size=1",
        ],
        &["-t", "ext4", "-b", "1024", "-g", "1024", "-J", "size=1"],
        &["-t", "ext4", "-b", "2048", "-g", "4096", "-J", "size=2"],
    ] {
        let device = populate(args, false);
        let whole = snapshot(&open_as(&device, true).unwrap()).unwrap();
        device.write_at(1024, &[0; 1024]).unwrap();
        let before = device.to_bytes().unwrap();
        let (told, damage) = std::sync::mpsc::channel();
        let reported = move |damage: &extant::Damage| told.send(damage.rule.clone()).unwrap();
        let options = VolumeOptions::new().on_damage(reported).read_only(true);
        drop(options.open_device(device.clone()).unwrap());
        let damage: Vec<String> = damage.try_iter().collect();
        assert!(
            damage.len() == 1 && damage[0].contains("superblock"),
            "a reader is told: {damage:?}"
        );
        let v = open_as(&device, false).unwrap_or_else(|e| panic!("{args:?}: {e}"));
        let why = v.read_only().expect("read-only");
        assert!(
            why.contains("superblock") && why.contains("backup"),
            "{why}"
        );
        assert!(
            snapshot(&v).unwrap() == whole,
            "{args:?}: the tree by the backup"
        );
        assert!(matches!(v.create_new_file("/x"), Err(Error::ReadOnly(_))));
        v.close().unwrap();
        assert!(device.to_bytes().unwrap() == before, "nothing is written");
    }
}

/// An unsupported feature is named when the image is refused or opened for reading.
#[test]
fn unsupported_features() {
    needs::tools!("mke2fs");
    let device = mem_image("32M", &["-t", "ext4", "-O", "casefold,encrypt"]);
    for read_only in [true, false] {
        let error = open_as(&device, read_only).expect_err("it opens");
        assert!(error.to_string().contains("casefold"), "{error}");
    }
    for feature in [
        "encrypt",
        "verity",
        "quota",
        "quota,project",
        "inline_data",
        "ea_inode",
        "bigalloc",
    ] {
        let device = mem_image("32M", &["-t", "ext4", "-O", feature]);
        let before = device.to_bytes().unwrap();
        let v = open_as(&device, false).unwrap_or_else(|e| panic!("{feature}: {e}"));
        let why = v
            .read_only()
            .unwrap_or_else(|| panic!("{feature} opens for writing"));
        let said = feature.split(',').next().unwrap();
        assert!(why.contains(said), "{feature}: {why}");
        assert!(matches!(v.create_new_file("/x"), Err(Error::ReadOnly(_))));
        assert!(v.read_dir("/").is_ok());
        v.close().unwrap();
        assert!(
            device.to_bytes().unwrap() == before,
            "{feature}: nothing is written"
        );
    }
}

fn superblock(device: &MemDevice) -> ext4_format::superblock::RawSuperblock {
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).unwrap();
    ext4_format::superblock::RawSuperblock::parse(&bytes).unwrap()
}

/// Names in an encoding without tables cannot be folded.
#[test]
fn unknown_encoding() {
    needs::tools!("mke2fs");
    let device = mem_image("32M", &["-t", "ext4", "-O", "casefold"]);
    let mut sb = superblock(&device);
    sb.encoding.set(2);
    sb.set_checksum();
    device.write_at(1024, sb.bytes()).unwrap();
    let error = open_as(&device, true).expect_err("no tables").to_string();
    assert!(error.contains("encoding 2"), "{error}");
}

#[test]
fn multiple_mount_protection() {
    needs::tools!("mke2fs", "e2fsck");
    let device = mem_image("32M", &["-t", "ext4", "-O", "mmp"]);
    let at = superblock(&device).mmp_block.get() * 4096;
    let number = || {
        let mut number = [0; 4];
        device.read_at(at + 4, &mut number).unwrap();
        u32::from_le_bytes(number)
    };
    let free = number();
    let v = open_as(&device, false).expect("an idle image opens");
    assert_eq!(v.read_only(), None);
    assert_ne!(number(), free, "the volume is claimed while it is open");
    v.write("/f", b"x").unwrap();
    v.close().unwrap();
    assert_eq!(number(), free);
    assert_clean(&device, "closed");
    // The number of a checker: another host repairs the volume.
    let mut block = vec![0; 4096];
    device.read_at(at, &mut block).unwrap();
    block[4..8].copy_from_slice(&ext4_format::mmp::CHECKED.to_le_bytes());
    let seed = Geometry::new(&superblock(&device)).unwrap().csum_seed;
    ext4_format::mmp::set_checksum(&mut block, seed);
    device.write_at(at, &block).unwrap();
    for read_only in [true, false] {
        let error = open_as(&device, read_only).expect_err("in use");
        assert_eq!(error.errno(), rustix::io::Errno::BUSY.raw_os_error());
        assert!(error.to_string().contains("a checker on"), "{error}");
    }
}

#[test]
fn external_journal() {
    needs::tools!("mke2fs");
    // The error names the journal, too.
    let device = mem_image("32M", &["-O", "journal_dev"]);
    let error = open_as(&device, true).expect_err("no file system");
    assert!(error.to_string().contains("journal_dev"), "{error}");
    let device = mem_image("32M", &["-t", "ext4"]);
    let mut sb = superblock(&device);
    sb.journal_inum = 0.into();
    sb.set_checksum();
    device.write_at(1024, sb.bytes()).unwrap();
    let error = open_as(&device, false)
        .expect_err("the journal is elsewhere")
        .to_string();
    assert!(error.contains("external journal"), "{error}");
}

#[test]
fn fast_commit_opens_when_clean() {
    needs::tools!("mke2fs");
    let device = mem_image("64M", &["-t", "ext4", "-O", "fast_commit"]);
    let v = open_as(&device, false).expect("a clean image opens");
    if v.read_only().is_none() {
        v.write("/x", b"x").unwrap();
    }
    v.close().unwrap();
    assert_clean(&device, "fast_commit");
}

/// An entry that leads to its own directory: an error, however it is reached.
#[test]
fn a_directory_that_holds_itself() {
    needs::tools!("mke2fs");
    let device = mem_image("16M", &["-t", "ext4", "-O", "^metadata_csum"]);
    let v = open(&device);
    let dir = v.create_dir("/dir").unwrap();
    let ino = dir.ino();
    v.create_dir("/dir/is itself").unwrap();
    v.create_dir("/other").unwrap();
    drop(dir);
    v.close().unwrap();
    let bytes = device.to_bytes().unwrap();
    let name = bytes.windows(9).rposition(|w| w == b"is itself").unwrap();
    device
        .write_at(name as u64 - 8, &ino.to_le_bytes())
        .unwrap();
    let v = open_as(&device, false).unwrap();
    let itself = "/dir/is itself";
    let mut all = vec![
        ("stat", v.metadata(itself).map(drop)),
        ("rmdir", v.remove_dir(itself)),
    ];
    for mode in [RenameMode::Replace, RenameMode::Exchange] {
        all.push(("onto it", v.rename_with("/other", itself, mode)));
        all.push(("away", v.rename_with(itself, "/other", mode)));
    }
    for (what, result) in all {
        assert!(
            matches!(result, Err(Error::Format(_))),
            "{what}: {result:?}"
        );
    }
}

/// A symbolic link that has a name but no links, by its own count.
#[test]
fn a_link_without_links() {
    needs::tools!("mke2fs");
    let device = mem_image("16M", &["-t", "ext4", "-O", "^metadata_csum"]);
    let v = open(&device);
    v.write("/file", b"content").unwrap();
    v.symlink("file", "/link").unwrap();
    v.close().unwrap();
    let bytes = device.to_bytes().unwrap();
    // The target stands where block numbers would, 40 bytes into the inode.
    let target = bytes.windows(8).position(|w| w == b"file\0\0\0\0");
    let inode = target.expect("the inode of the link") as u64 - 40;
    let mut links = [0; 2];
    device.read_at(inode + 26, &mut links).unwrap();
    assert_eq!(links, [1, 0]);
    device.write_at(inode + 26, &[0, 0]).unwrap();
    let v = open_as(&device, false).unwrap();
    // The calls may fail, but must return.
    let _ = (
        v.metadata("/link"),
        v.symlink_metadata("/link"),
        v.read_link("/link"),
    );
    let _ = (v.read("/link"), v.list_xattrs("/link"));
    assert_eq!(v.read("/file").unwrap(), b"content");
}
