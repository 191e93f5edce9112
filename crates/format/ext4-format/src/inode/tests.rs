use super::*;
use crate::features::RoCompat;
use crate::layout::{Layout, LayoutParams};
use proptest::prelude::*;

fn geo(inode_size: u16) -> Geometry {
    let mut p = LayoutParams::for_size(64 << 20);
    p.inode_size = inode_size;
    Layout::new(&p).unwrap().geometry
}

fn sample() -> InodeCore {
    InodeCore {
        mode: 0o100_644,
        links: 3,
        uid: 0x1_2345,
        gid: 0x5_4321,
        size: 1 << 40 | 7,
        flags: flags::EXTENTS,
        generation: 77,
        atime: Timestamp::new(1 << 33, 1),
        mtime: Timestamp::new(-5, 2),
        ctime: Timestamp::new(3, 999_999_999),
        crtime: Timestamp::new(4, 3),
        dtime: 9,
        rdev: 0,
        project: 0,
    }
}

/// A project is part of the record where the feature is on and the inode is large enough.
#[test]
fn projects_come_and_go() {
    for (size, feature, kept) in [(256, true, 7), (256, false, 0), (128, true, 0)] {
        let mut geo = geo(size);
        geo.features.ro_compat.set(RoCompat::PROJECT, feature);
        let mut raw = vec![0; size.into()];
        init(&mut raw, &geo);
        assert_eq!(has_project_room(&raw, &geo), kept != 0, "{size}, {feature}");
        let core = InodeCore {
            project: 7,
            ..sample()
        };
        encode_core(&core, &mut raw, &geo);
        assert_eq!(project(&raw), kept, "{size}, {feature}");
        let ino = InodeNr(12);
        set_checksum(&mut raw, &geo, ino);
        assert_eq!(decode_core(&raw, &geo, ino).unwrap().project, kept);
    }
}

#[test]
fn round_trip_and_checksum() {
    for size in [256u16, 512, 1024] {
        let geo = geo(size);
        let mut raw = vec![0xff; size.into()];
        init(&mut raw, &geo);
        encode_core(&sample(), &mut raw, &geo);
        set_sectors(&mut raw, &geo, 1 << 33).unwrap();
        set_file_acl(&mut raw, BlockNr(1 << 40));
        set_checksum(&mut raw, &geo, InodeNr(12));
        assert_eq!(decode_core(&raw, &geo, InodeNr(12)).unwrap(), sample());
        assert!(decode_core(&raw, &geo, InodeNr(13)).is_err());
        assert_eq!(sectors(&raw, &geo), 1 << 33);
        assert_eq!(file_acl(&raw, &geo), BlockNr(1 << 40));
        assert_eq!(xattr_area(&raw, &geo), Some(160..size.into()));
        for bit in 0..raw.len() * 8 {
            raw[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_core(&raw, &geo, InodeNr(12)).is_err(), "bit {bit}");
            raw[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn freeing_writes_what_encoding_the_whole_core_would() {
    for size in [128u16, 256, 1024] {
        let geo = geo(size);
        for mode in [0o100_644, 0o040_755, 0o120_777] {
            let mut whole = vec![0; size.into()];
            init(&mut whole, &geo);
            encode_core(&InodeCore { mode, ..sample() }, &mut whole, &geo);
            set_sectors(&mut whole, &geo, 1 << 48).unwrap();
            set_file_acl(&mut whole, BlockNr(1 << 40 | 7));
            let mut freed = whole.clone();
            let (ctime, dtime) = (Timestamp::new(1 << 32, 17), 11);
            let old = decode_verified(&whole, &geo, InodeNr(12)).unwrap();
            let core = InodeCore {
                links: 0,
                size: 0,
                ctime,
                dtime,
                ..old
            };
            encode_core(&core, &mut whole, &geo);
            set_sectors(&mut whole, &geo, 0).unwrap();
            set_file_acl(&mut whole, BlockNr(0));
            encode_freed(&mut freed, &geo, ctime, dtime);
            assert_eq!(freed, whole, "{mode:o} in {size}");
        }
    }
}

#[test]
fn short_inodes_keep_seconds_only() {
    let geo = geo(128);
    let mut raw = [0; 128];
    init(&mut raw, &geo);
    encode_core(&sample(), &mut raw, &geo);
    set_checksum(&mut raw, &geo, InodeNr(12));
    let back = decode_core(&raw, &geo, InodeNr(12)).unwrap();
    assert_eq!(back.mtime, Timestamp::new(-5, 0));
    assert_eq!(back.atime.secs(), i64::from(i32::MAX));
    assert_eq!(back.crtime, Timestamp::default());
    assert_eq!(xattr_area(&raw, &geo), None);
}

#[test]
fn devices_and_huge_counts() {
    let geo = geo(256);
    for rdev in [
        0,
        makedev(8, 1),
        makedev(255, 255),
        makedev(259, 3),
        makedev(1, 300),
    ] {
        let mut raw = [0; 256];
        init(&mut raw, &geo);
        let core = InodeCore {
            mode: 0o060_600,
            rdev,
            ..sample()
        };
        encode_core(&core, &mut raw, &geo);
        set_checksum(&mut raw, &geo, InodeNr(12));
        assert_eq!(decode_core(&raw, &geo, InodeNr(12)).unwrap().rdev, rdev);
    }
    let mut raw = [0; 256];
    init(&mut raw, &geo);
    let n = 1u64 << 48;
    set_sectors(&mut raw, &geo, n).unwrap();
    assert_eq!(sectors(&raw, &geo), n);
    encode_core(&sample(), &mut raw, &geo);
    assert_eq!(
        sectors(&raw, &geo),
        n,
        "the core's flags leave HUGE_FILE alone"
    );
    assert!(set_sectors(&mut raw, &geo, u64::MAX).is_err());
}

proptest! {
    #[test]
    fn any_record_never_panics(mut raw in proptest::collection::vec(any::<u8>(), 0..300)) {
        for size in [128, 256] {
            let mut geo = geo(size);
            let _ = (decode_core(&raw, &geo, InodeNr(3)), xattr_area(&raw, &geo));
            geo.features.apply("^metadata_csum").unwrap();
            let _ = (decode_core(&raw, &geo, InodeNr(3)), sectors(&raw, &geo), i_block(&raw).is_ok());
            set_checksum(&mut raw, &geo, InodeNr(1));
            encode_core(&sample(), &mut raw, &geo);
            init(&mut raw, &geo);
        }
    }
}

proptest! {
    /// The checksum of one piece is that of the definition: seed, number, generation, then the record with its own
    /// two fields as zeros.
    #[test]
    fn checksum_is_that_of_the_pieces(
        log_size in 7u32..=12,
        bytes in prop::collection::vec(any::<u8>(), 4096),
        extra in prop::sample::select(vec![0u16, 2, 4, 28, 32, 999]),
        ino in 1u32..,
    ) {
        let geo = geo(256);
        let mut raw = bytes;
        raw.truncate(1 << log_size);
        if raw.len() > GOOD_OLD_SIZE {
            put(&mut raw, at::EXTRA_ISIZE, extra.to_le_bytes());
        }
        let has_high_half = raw.len() > GOOD_OLD_SIZE && has_csum_hi(&raw);
        let mut zeroed = raw.clone();
        put(&mut zeroed, at::CSUM, [0; 2]);
        if has_high_half {
            put(&mut zeroed, at::CSUM_HI, [0; 2]);
        }
        let seed = crate::checksum::inode_seed(geo.csum_seed, InodeNr(ino), u32_at(&raw, at::GENERATION));
        let sum = zeroed.iter().fold(seed, |sum, &byte| crc32c(sum, &[byte]));
        let expected = if has_high_half { sum } else { sum & 0xffff };
        prop_assert_eq!(computed_checksum(&raw, &geo, InodeNr(ino)), Some(expected));
        prop_assert_eq!(computed_checksum(&raw[..100], &geo, InodeNr(ino)), None);
    }
}
