//! Directories that fold case, written by the engine and judged by e2fsprogs.

use crate::common;
use crate::folded;
use common::{assert_clean, mem_image, open, snapshot};
use ext4_format::inode::flags;
use extant::{Error, RenameMode, SetAttributes, Volume};
use std::sync::atomic::{AtomicUsize, Ordering};

const SIZE: &str = "32M";
const FOLDED: &[&str] = &["-t", "ext4", "-b", "1024", "-O", "casefold"];
const STRICT: &[&str] = &[
    "-t",
    "ext4",
    "-O",
    "casefold",
    "-E",
    "encoding=utf8,encoding_flags=strict",
];

/// The flags as chattr sets them.
fn set_flags(v: &Volume, path: &str, change: impl Fn(u32) -> u32) -> extant::Result<()> {
    let old = v.metadata(path)?.flags();
    let set = SetAttributes {
        flags: Some(change(old)),
        ..Default::default()
    };
    v.set_attributes(path, &set)
}

fn fold(v: &Volume, path: &str) {
    set_flags(v, path, |old| old | flags::CASEFOLD).unwrap();
}

fn names(v: &Volume, path: &str) -> Vec<String> {
    let entries = v.read_dir(path).unwrap().map(Result::unwrap);
    let mut names: Vec<_> = entries
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn names_are_found_in_any_case_and_stay_as_they_are() {
    needs::tools!("mke2fs", "e2fsck");
    let device = mem_image(SIZE, FOLDED);
    let v = open(&device);
    v.create_dir("/d").unwrap();
    fold(&v, "/d");
    v.write("/d/Straße", b"1").unwrap();
    assert_eq!(v.read("/d/STRASSE").unwrap(), b"1");
    assert_eq!(v.read("/d/stra\u{200d}sse").unwrap(), b"1");
    // An existing name is written to, not made.
    v.write("/d/strasse", b"2").unwrap();
    assert!(matches!(
        v.create_new_file("/d/STRASSE"),
        Err(Error::Exists)
    ));
    assert!(matches!(v.create_dir("/d/STRASSE"), Err(Error::Exists)));
    assert!(matches!(
        v.hard_link("/d/STRASSE", "/d/straSSe"),
        Err(Error::Exists)
    ));
    assert_eq!(names(&v, "/d"), ["Straße"]);
    // Outside of the directory, names are not folded.
    v.write("/Name", b"").unwrap();
    v.write("/name", b"").unwrap();
    assert!(matches!(v.metadata("/NAME"), Err(Error::NotFound)));
    // A directory inside folds, too. A file does not have the flag.
    v.create_dir("/d/Sub").unwrap();
    v.create_dir("/d/sub/deeper").unwrap();
    v.write("/d/SUB/DEEPER/File", b"3").unwrap();
    assert_eq!(
        v.read("/D/sub".replace('D', "d") + "/Deeper/FILE").unwrap(),
        b"3"
    );
    assert!(v.metadata("/d/sub/deeper").unwrap().flags() & flags::CASEFOLD != 0);
    assert!(v.metadata("/d/sub/deeper/file").unwrap().flags() & flags::CASEFOLD == 0);
    v.remove_file("/d/SUB/deeper/file").unwrap();
    v.remove_dir("/d/SUB/DEEPER").unwrap();
    assert_eq!(names(&v, "/d/sub"), Vec::<String>::new());
    v.close().unwrap();
    assert_clean(&device, "names in any case");
    let v = open(&device);
    assert_eq!(v.read("/d/STRASSE").unwrap(), b"2");
    assert_eq!(names(&v, "/d"), ["Straße", "Sub"]);
    v.remove_file("/d/STRASSE").unwrap();
    v.remove_dir("/d/sUB").unwrap();
    set_flags(&v, "/d", |old| old & !flags::CASEFOLD).unwrap();
    v.write("/d/a", b"").unwrap();
    v.write("/d/A", b"").unwrap();
    v.close().unwrap();
    assert_clean(&device, "names of their own case again");
}

#[test]
fn a_rename_onto_another_case_keeps_the_name_that_is_there() {
    needs::tools!("mke2fs", "e2fsck");
    let device = mem_image(SIZE, FOLDED);
    let v = open(&device);
    v.create_dir("/d").unwrap();
    fold(&v, "/d");
    v.create_dir("/d/in").unwrap();
    v.create_dir("/out").unwrap();
    for (path, bytes) in [("/d/One", b"1"), ("/d/Two", b"2"), ("/out/Three", b"3")] {
        v.write(path, bytes).unwrap();
    }
    // Both names lead to one file, so nothing is done, as between two links.
    v.rename("/d/One", "/d/ONE").unwrap();
    assert_eq!(names(&v, "/d"), ["One", "Two", "in"]);
    v.rename("/d/oNE", "/d/TWO").unwrap();
    assert_eq!(names(&v, "/d"), ["Two", "in"]);
    assert_eq!(v.read("/d/two").unwrap(), b"1");
    v.rename("/out/Three", "/d/tWo").unwrap();
    assert_eq!(v.read("/d/two").unwrap(), b"3");
    v.rename("/d/two", "/d/IN/Other").unwrap();
    assert_eq!(names(&v, "/d/in"), ["Other"]);
    v.rename("/d/in/OTHER", "/out/OTHER").unwrap();
    assert_eq!(names(&v, "/out"), ["OTHER"]);
    v.rename("/d/IN", "/d/into").unwrap();
    assert_eq!(names(&v, "/d"), ["into"]);
    v.rename("/d/INTO", "/d/Last").unwrap();
    assert!(matches!(v.metadata("/d/into"), Err(Error::NotFound)));
    v.write("/d/x", b"x").unwrap();
    v.rename_with("/d/X", "/d/LAST", RenameMode::Exchange)
        .unwrap();
    assert_eq!(names(&v, "/d"), ["Last", "x"]);
    assert_eq!(v.read("/d/last").unwrap(), b"x");
    assert!(matches!(
        v.rename_with("/d/last", "/d/X", RenameMode::NoReplace),
        Err(Error::Exists)
    ));
    let before = snapshot(&v).unwrap();
    v.close().unwrap();
    assert_clean(&device, "renames");
    assert!(snapshot(&open(&device)).unwrap() == before);
}

#[test]
fn only_an_empty_directory_changes_how_it_compares_names() {
    needs::tools!("mke2fs", "e2fsck");
    let device = mem_image(SIZE, FOLDED);
    let v = open(&device);
    v.create_dir("/d").unwrap();
    v.write("/d/file", b"").unwrap();
    let fold = |path| set_flags(&v, path, |old| old | flags::CASEFOLD);
    assert!(matches!(fold("/d"), Err(Error::NotEmpty)));
    assert!(matches!(fold("/d/file"), Err(Error::Unsupported(_))));
    v.remove_file("/d/file").unwrap();
    fold("/d").unwrap();
    v.write("/d/file", b"").unwrap();
    let plain = |path| set_flags(&v, path, |old| old & !flags::CASEFOLD);
    assert!(matches!(plain("/d"), Err(Error::NotEmpty)));
    // The flag stays, too, if the names of the directory are not in memory.
    v.sync().unwrap();
    v.drop_caches();
    assert!(matches!(plain("/d"), Err(Error::NotEmpty)));
    // Other flags may change.
    set_flags(&v, "/d", |old| old | flags::NODUMP).unwrap();
    v.close().unwrap();
    assert_clean(&device, "flags");
    let device = mem_image(SIZE, &["-t", "ext4"]);
    let v = open(&device);
    v.create_dir("/d").unwrap();
    let refused = set_flags(&v, "/d", |old| old | flags::CASEFOLD);
    assert!(matches!(refused, Err(Error::Unsupported(_))));
}

#[test]
fn a_strict_encoding_refuses_what_is_not_utf8() {
    needs::tools!("mke2fs", "e2fsck");
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let path = |bytes: &'static [u8]| OsStr::from_bytes(bytes);
    for (args, strict) in [(FOLDED, false), (STRICT, true)] {
        let device = mem_image(SIZE, args);
        let v = open(&device);
        v.create_dir("/d").unwrap();
        fold(&v, "/d");
        v.write("/d/good", b"").unwrap();
        v.write(path(b"/A\xff"), b"").unwrap();
        let made = [
            v.write(path(b"/d/A\xff"), b"").err(),
            v.create_dir(path(b"/d/B\xff")).err(),
            v.hard_link("/d/good", path(b"/d/C\xff")).err(),
            v.rename("/d/good", path(b"/d/D\xff")).err(),
        ];
        for error in made {
            assert_eq!(
                matches!(error, Some(Error::Invalid(_))),
                strict,
                "{error:?}"
            );
            assert_eq!(error.is_none(), !strict, "{error:?}");
        }
        if !strict {
            // Invalid names are compared byte by byte.
            assert!(matches!(
                v.metadata(path(b"/d/a\xff")),
                Err(Error::NotFound)
            ));
            v.write(path(b"/d/a\xff"), b"").unwrap();
            assert_eq!(v.read_dir("/d").unwrap().count(), 5);
        }
        v.close().unwrap();
        assert_clean(&device, "names that are not UTF-8");
    }
}

/// Names are made in several commits, so that leaves are split by folded hashes, and removed in another case.
#[test]
fn a_large_directory_has_an_index_by_folded_hashes() {
    needs::tools!("mke2fs", "e2fsck");
    let device = mem_image(SIZE, FOLDED);
    let v = open(&device);
    v.create_dir("/d").unwrap();
    fold(&v, "/d");
    let path = |n: usize| format!("/d/{}", String::from_utf8(folded::name(n)).unwrap());
    let other = |n: usize| path(n).replacen("/d/", "", 1).to_lowercase();
    for n in 0..2500 {
        v.write(path(n), n.to_le_bytes()).unwrap();
        if n % 400 == 0 {
            v.sync().unwrap();
        }
    }
    v.close().unwrap();
    assert_clean(&device, "a large directory");
    let v = open(&device);
    let is = |v: &Volume, n: usize| match v.read(format!("/d/{}", other(n))) {
        Ok(bytes) => assert_eq!(bytes, n.to_le_bytes(), "{}", path(n)),
        Err(e) => panic!("{}: {e}", path(n)),
    };
    for n in 0..2500 {
        is(&v, n);
    }
    for n in (0..2500).step_by(2) {
        v.remove_file(format!("/d/{}", other(n))).unwrap();
    }
    v.sync().unwrap();
    for n in (0..1000).step_by(2) {
        v.write(
            path(n).to_uppercase().replacen("/D/", "/d/", 1),
            n.to_le_bytes(),
        )
        .unwrap();
    }
    for n in (1..1000).step_by(2) {
        is(&v, n);
    }
    assert_eq!(v.read_dir("/d").unwrap().count(), 1750);
    v.close().unwrap();
    assert_clean(&device, "a large directory with other names");
}

/// A directory made by e2fsprogs is read, by names in any case, and stays clean when it is changed.
#[test]
fn an_index_of_e2fsck_is_read_and_written() {
    needs::tools!("mke2fs", "debugfs", "e2fsck");
    let all: Vec<_> = (0..900).map(folded::name).collect();
    let device = std::sync::Arc::new(folded::image(&[], folded::LENIENT, &all, true));
    let v = open(&device);
    for name in &all {
        let name = String::from_utf8(name.clone()).unwrap();
        assert_eq!(
            v.read(format!("/d/{}", name.to_lowercase())).unwrap(),
            b"data"
        );
    }
    for n in 900..1200 {
        let name = String::from_utf8(folded::name(n)).unwrap();
        v.write(format!("/d/{name}"), b"more").unwrap();
    }
    for name in all.iter().step_by(3) {
        let name = String::from_utf8(name.clone()).unwrap();
        v.remove_file(format!("/d/{}", name.to_lowercase()))
            .unwrap();
    }
    assert_eq!(v.read_dir("/d").unwrap().count(), 900);
    v.close().unwrap();
    assert_clean(&device, "an index of e2fsck");
}

/// Two names that are equal when folded, as other programs may have made them: each can be removed.
#[test]
fn names_that_are_the_same_when_folded_are_removed_one_by_one() {
    needs::tools!("mke2fs", "debugfs", "e2fsck");
    let names = ["STRASSE", "Straße", "other"].map(|n| n.as_bytes().to_vec());
    let device = std::sync::Arc::new(folded::image(&[], folded::LENIENT, &names, false));
    let v = open(&device);
    assert_eq!(v.read_dir("/d").unwrap().count(), 3);
    v.rename("/d/strasse", "/d/Third").unwrap();
    v.remove_file("/d/strasse").unwrap();
    assert!(matches!(v.metadata("/d/straße"), Err(Error::NotFound)));
    assert_eq!(self::names(&v, "/d"), ["Third", "other"]);
    v.close().unwrap();
    assert_clean(&device, "two names");
}

/// Counts one more when it is dropped.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Names are added and removed while the directory changes how it compares them.
#[test]
fn the_flag_changes_between_operations_that_make_names() {
    needs::tools!("mke2fs", "e2fsck");
    let device = mem_image(SIZE, FOLDED);
    let v = open(&device);
    v.create_dir("/d").unwrap();
    v.write("/file", b"").unwrap();
    let (ended, flips) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (v, ended) = (&v, &ended);
            scope.spawn(move || {
                // Counts the end also when the thread panics.
                let _ends = Counted(ended);
                let name = format!("/d/Name{thread}");
                for n in 0..4000 {
                    match n % 3 {
                        0 => drop(v.create_new_file(&name).unwrap()),
                        1 => v.hard_link("/file", &name).unwrap(),
                        _ => {
                            let out = format!("/out{thread}");
                            v.write(&out, b"").unwrap();
                            v.rename(&out, &name).unwrap();
                        }
                    }
                    // The name is found, because otherwise it would be made twice.
                    let again = v.create_new_file(&name);
                    assert!(matches!(again, Err(Error::Exists)));
                    v.remove_file(&name).unwrap();
                }
            });
        }
        scope.spawn(|| {
            while ended.load(Ordering::Relaxed) < 3 {
                match set_flags(&v, "/d", |old| old ^ flags::CASEFOLD) {
                    Ok(()) => _ = flips.fetch_add(1, Ordering::Relaxed),
                    Err(Error::NotEmpty) => {}
                    Err(e) => panic!("{e}"),
                }
            }
        });
    });
    assert!(flips.into_inner() > 0);
    assert_eq!(names(&v, "/d"), Vec::<String>::new());
    for thread in 0..3 {
        v.write(format!("/d/Name{thread}"), b"").unwrap();
    }
    v.close().unwrap();
    assert_clean(&device, "a flag that changes");
}
