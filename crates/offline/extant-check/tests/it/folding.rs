//! Directories that fold case are judged as by e2fsck.

use crate::it::folded;
use crate::it::verdict;
use blockdev::{BlockDevice, MemDevice};
use ext4_format::features::{Features, Incompat};
use ext4_format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use extant_check::Rule;
use folded::{LENIENT, STRICT};

const PLAIN: &[&str] = &["-O", "^metadata_csum"];

/// Returns the rules that the image breaks, by the check.
fn broken(device: &MemDevice) -> Vec<Rule> {
    let report = verdict::check(device, true);
    report.findings.iter().map(|f| f.rule).collect()
}

#[test]
fn an_index_of_folded_names_is_sound() {
    needs::tools!("mke2fs", "debugfs", "e2fsck");
    let names: Vec<_> = (0..1500).map(folded::name).collect();
    for (args, encoding) in [
        (&["-O", "metadata_csum"][..], LENIENT),
        (PLAIN, STRICT),
        (&["-O", "^has_journal"], LENIENT),
    ] {
        let device = folded::image(args, encoding, &names, true);
        let (clean, text) = verdict::judge(&device);
        assert!(clean, "{text}");
        let report = verdict::check(&device, true);
        assert!(report.findings.is_empty(), "{:#?}", report.findings);
        // Hashes are compared: with unfolded names, most of them differ.
        let mut bytes = [0; SUPERBLOCK_SIZE];
        device.read_at(SUPERBLOCK_OFFSET, &mut bytes).unwrap();
        let mut sb = RawSuperblock::parse(&bytes).unwrap();
        let without = Features::of(&sb).incompat.difference(Incompat::CASEFOLD);
        sb.feature_incompat.set(without.bits());
        sb.set_checksum();
        device.write_at(SUPERBLOCK_OFFSET, sb.bytes()).unwrap();
        assert!(broken(&device).contains(&Rule::IndexHash));
    }
}

#[test]
fn a_folded_name_in_the_wrong_leaf_is_found() {
    needs::tools!("mke2fs", "debugfs", "e2fsck");
    let names: Vec<_> = (0..600).map(folded::name).collect();
    let device = folded::image(PLAIN, LENIENT, &names, true);
    // Another letter changes the hash; another case of it does not.
    let bytes = device.to_bytes().unwrap();
    let at = folded::find(&bytes, "ΜΆΪΟΣ 400".as_bytes())[0] as u64;
    device.write_at(at, "μ".as_bytes()).unwrap();
    assert_eq!(broken(&device), []);
    assert!(verdict::judge(&device).0);
    let mut seen = false;
    for letter in ["Ξ", "Π", "Λ", "Δ"] {
        device.write_at(at, letter.as_bytes()).unwrap();
        let (clean, text) = verdict::judge(&device);
        let rules = broken(&device);
        assert_eq!(rules.is_empty(), clean, "{letter} {rules:?} {text}");
        seen |= rules.contains(&Rule::IndexHash);
    }
    assert!(seen);
}

#[test]
fn names_that_are_the_same_when_folded_are_found() {
    needs::tools!("mke2fs", "debugfs", "e2fsck");
    let names = ["STRASSE", "Straße", "other"].map(|n| n.as_bytes().to_vec());
    for encoding in [LENIENT, STRICT] {
        let device = folded::image(PLAIN, encoding, &names, false);
        assert_eq!(broken(&device), [Rule::EntryTwice]);
        // e2fsck looks for such names in each pass if the encoding is strict, otherwise when it rebuilds a directory.
        assert_eq!(verdict::judge(&device).0, encoding == LENIENT);
    }
    let names = ["STRASSE", "Strasze", "other"].map(|n| n.as_bytes().to_vec());
    let device = folded::image(PLAIN, STRICT, &names, false);
    assert_eq!(broken(&device), []);
}

#[test]
fn names_that_are_not_utf8_are_found_where_they_are_refused() {
    needs::tools!("mke2fs", "debugfs", "e2fsck");
    let names = [
        &b"A\xff"[..],
        b"a\xff",
        b"B\xed\xa0\x80",
        b"C\xe2\x82",
        b"fine",
    ];
    let names = names.map(<[u8]>::to_vec);
    let device = folded::image(PLAIN, LENIENT, &names, false);
    assert_eq!(broken(&device), []);
    assert!(verdict::judge(&device).0);
    let device = folded::image(PLAIN, STRICT, &names, false);
    assert_eq!(broken(&device), [Rule::EntryName; 4]);
    let (clean, text) = verdict::judge(&device);
    assert!(!clean);
    assert_eq!(text.matches("illegal UTF-8").count(), 4, "{text}");
}

/// Names as long as names can be, longer when they are folded.
#[test]
fn the_longest_names_are_folded() {
    needs::tools!("mke2fs", "debugfs", "e2fsck");
    let long = |n: usize| {
        let n = format!("{n:03}");
        format!("{n}{}", "\u{1d160}".repeat(63)).into_bytes()
    };
    let names: Vec<_> = (0..60).map(long).collect();
    assert_eq!(names[0].len(), 255);
    let device = folded::image(PLAIN, LENIENT, &names, true);
    assert!(verdict::judge(&device).0);
    assert_eq!(broken(&device), []);
}
