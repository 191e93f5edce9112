//! File systems made from several sources: directories and archives over each other, in any order.

use crate::it::mkfs::from_tar::{Build, expect};
use crate::it::mkfs::support::{EPOCH, Image, options, scratch};
use extant_mkfs::{self as mkfs, MkfsOptions, Source, TreeSource};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

fn tree(path: &Path) -> Source {
    Source::Tree(TreeSource::new(path))
}

fn tar(build: Build) -> Source {
    Source::Archive(build.input())
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn image(sources: Vec<Source>) -> Image {
    Image::write(&mkfs::prepare_from(&options(), sources).unwrap())
}

#[test]
fn directories_over_archives_over_directories() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    write(&at("base/etc/motd"), "base");
    write(&at("base/etc/gone"), "1");
    write(&at("base/etc/stays"), "2");
    write(&at("base/opaque/old"), "3");
    write(&at("base/becomes"), "4");
    symlink("etc", at("base/link")).unwrap();
    let archive = Build::new()
        .file("etc/motd", "archive")
        .file("etc/.wh.gone", "")
        .file("from/archive", "5")
        .file("link/through", "6");
    write(&at("top/etc/motd"), "top");
    write(&at("top/opaque/.wh..wh..opq"), "");
    write(&at("top/opaque/new"), "7");
    write(&at("top/becomes/inner"), "8");
    write(&at("top/from/.wh.archive"), "");
    write(&at("top/link/real"), "9");
    fs::set_permissions(at("top/etc"), fs::Permissions::from_mode(0o750)).unwrap();
    let made = image(vec![tree(&at("base")), tar(archive), tree(&at("top"))]);
    expect(
        &made,
        &[
            ("becomes", "/"),
            ("becomes/inner", "8"),
            ("etc", "/"),
            ("etc/motd", "top"),
            ("etc/stays", "2"),
            // The archive wrote through the link, as extracting does; the tree brought a directory.
            ("etc/through", "6"),
            ("from", "/"),
            ("link", "/"),
            ("link/real", "9"),
            ("opaque", "/"),
            ("opaque/new", "7"),
        ],
    );
    // Attributes of a directory are those of the last layer that has it.
    if let Some(mount) = made.mount() {
        let mode = fs::metadata(mount.at.join("etc")).unwrap().permissions();
        assert_eq!(mode.mode() & 0o7777, 0o750);
    }
    // A single directory is not a layer: whiteout names in it are ordinary names.
    expect(&image(vec![tree(&at("top/from"))]), &[(".wh.archive", "")]);
}

#[test]
fn links_outlive_the_names_they_were_made_from() {
    let dir = scratch();
    let base = dir.path().join("base");
    write(&base.join("a/b/file"), "content of the file");
    fs::hard_link(base.join("a/b/file"), base.join("second")).unwrap();
    write(&base.join("other"), "another");
    // The remaining names of the file are those that were never in the directory.
    let middle = Build::new()
        .link("new/name", "a/b/file")
        .link("new/twice", "second")
        .link("z", "other");
    let top = Build::new()
        .file(".wh.a", "")
        .file(".wh.second", "")
        .file("other", "in its place");
    let made = image(vec![tree(&base), tar(middle), tar(top)]);
    expect(
        &made,
        &[
            ("new", "/"),
            ("new/name", "content of the file"),
            ("new/twice", "content of the file"),
            ("other", "in its place"),
            ("z", "another"),
        ],
    );
    assert_eq!(made.report.hard_links, 1);
}

#[test]
fn holes_and_large_files_come_from_the_layer_they_are_in() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let pattern = |seed: u32| -> Vec<u8> {
        (0..700_000u32)
            .flat_map(|n| (n.wrapping_mul(seed)).to_le_bytes())
            .collect()
    };
    for (name, seed) in [("one", 3), ("two", 5)] {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("large"), pattern(seed)).unwrap();
        fs::write(at(name).join(name), pattern(seed + 10)).unwrap();
        let sparse = fs::File::create(at(name).join(format!("{name}.sparse"))).unwrap();
        sparse.set_len(3 << 20).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&sparse, name.as_bytes(), 2 << 20).unwrap();
    }
    let made = image(vec![tree(&at("one")), tree(&at("two"))]);
    made.check("layers");
    let Some(mount) = made.mount() else { return };
    let read = |name: &str| fs::read(mount.at.join(name)).unwrap();
    assert!(read("large") == pattern(5));
    assert!(read("one") == pattern(13) && read("two") == pattern(15));
    for name in ["one", "two"] {
        let sparse = read(&format!("{name}.sparse"));
        assert_eq!(
            (sparse.len(), &sparse[2 << 20..][..3]),
            (3 << 20, name.as_bytes())
        );
    }
}

#[test]
fn the_same_bytes_whatever_the_number_of_threads() {
    let dir = scratch();
    for layer in 0..3 {
        for d in 0..20 {
            for n in 0..30 {
                let path = format!("{layer}/d{}/f{n}", (d * 7 + layer) % 25);
                write(
                    &dir.path().join(path),
                    &format!("{layer} {d} {n}").repeat(n),
                );
            }
        }
    }
    let make = |threads| {
        let archive = (0..50).fold(Build::new(), |b, n| b.file(&format!("d{n}/x"), "x"));
        let options = MkfsOptions {
            threads,
            source_date_epoch: Some(EPOCH),
            ..options()
        };
        let at = |name: &str| tree(&dir.path().join(name));
        let sources = vec![at("0"), tar(archive), at("1"), at("2")];
        let made = Image::write(&mkfs::prepare_from(&options, sources).unwrap());
        made.check("layers");
        fs::read(&made.path).unwrap()
    };
    let one = make(1);
    assert!(one == make(2) && one == make(7));
}
