//! Directories that fold case are mended, and e2fsck finds them clean after that.

use crate::it::common;
use crate::it::folded;
use crate::it::verdict;
use blockdev::{BlockDevice, MemDevice};
use extant_repair::Plan;
use folded::{LENIENT, STRICT};

const PLAIN: &[&str] = &["-O", "^metadata_csum"];

fn mended(device: &MemDevice) -> Plan {
    let plan = extant_repair::plan(device, 1_700_000_000, &mut |_| true).unwrap();
    plan.apply(device).unwrap();
    let (clean, text) = verdict::judge(device);
    assert!(clean, "{:#?}\n{text}", plan.mends);
    assert!(plan.after.is_clean());
    plan
}

/// Returns the names in a directory, by debugfs.
fn listed(device: &MemDevice, path: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    common::write_image(device, &image);
    folded::debugfs(&image, format!("ls -p {path}\n").as_bytes())
}

#[test]
fn a_sound_index_of_folded_names_stays() {
    needs::tools!("mke2fs", "debugfs", "e2fsck");
    let names: Vec<_> = (0..600).map(folded::name).collect();
    for (args, encoding) in [(&[][..], LENIENT), (PLAIN, STRICT)] {
        let device = folded::image(args, encoding, &names, true);
        assert!(mended(&device).mends.is_empty());
    }
}

#[test]
fn an_index_that_a_folded_name_is_not_in_place_of_is_given_up() {
    needs::tools!("mke2fs", "debugfs", "e2fsck");
    let names: Vec<_> = (0..600).map(folded::name).collect();
    let device = folded::image(PLAIN, LENIENT, &names, true);
    let at = folded::find(&device.to_bytes().unwrap(), "ΜΆΪΟΣ 400".as_bytes())[0] as u64;
    // Another case has the same place.
    device.write_at(at, "μ".as_bytes()).unwrap();
    assert!(mended(&device).mends.is_empty());
    let wrong = ["Ξ", "Π", "Λ", "Δ"].into_iter().find(|letter| {
        device.write_at(at, letter.as_bytes()).unwrap();
        !verdict::judge(&device).0
    });
    let plan = mended(&device);
    assert!(
        plan.mends
            .iter()
            .any(|m| m.to_string().contains("index is given up"))
    );
    assert!(listed(&device, "d").contains(&format!("{}ΆΪΟΣ 400", wrong.unwrap())));
}

#[test]
fn of_names_that_are_the_same_when_folded_one_stays() {
    needs::tools!("mke2fs", "debugfs", "e2fsck");
    let names = ["STRASSE", "Straße", "other"].map(|n| n.as_bytes().to_vec());
    for encoding in [LENIENT, STRICT] {
        let device = folded::image(PLAIN, encoding, &names, false);
        mended(&device);
        let left = listed(&device, "d");
        assert!(
            left.contains("/STRASSE/") && left.contains("/other/"),
            "{left}"
        );
        assert!(left.contains("/Straß~0/"), "{left}");
    }
}

#[test]
fn names_that_are_not_utf8_get_dots_where_they_are_refused() {
    needs::tools!("mke2fs", "debugfs", "e2fsck");
    let names = [&b"A\xff"[..], b"a\xff", b"B\xed\xa0\x80b", b"\xff", b"fine"];
    let names = names.map(<[u8]>::to_vec);
    let device = folded::image(PLAIN, LENIENT, &names, false);
    assert!(mended(&device).mends.is_empty());
    let device = folded::image(PLAIN, STRICT, &names, false);
    mended(&device);
    let left = listed(&device, "d");
    for name in ["A.", "a.~0", "B...b", "fine"] {
        assert!(left.contains(&format!("/{name}/")), "{left}");
    }
    // The record that would have been ".".
    assert_eq!(listed(&device, "lost+found").matches("/#").count(), 1);
}

/// Names in an index are renamed, too, and leave the index.
#[test]
fn an_index_with_names_that_are_not_utf8_is_given_up() {
    needs::tools!("mke2fs", "debugfs", "e2fsck");
    let names: Vec<_> = (0..300).map(|n| format!("{n:040}").into_bytes()).collect();
    let device = folded::image(PLAIN, STRICT, &names, true);
    let at = folded::find(&device.to_bytes().unwrap(), &names[77])[0] as u64;
    device.write_at(at, b"\xff").unwrap();
    mended(&device);
    let left = listed(&device, "d");
    assert!(left.contains(&format!("/.{:039}/", 77)), "{left}");
}
