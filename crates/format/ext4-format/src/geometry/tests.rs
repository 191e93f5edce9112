use super::*;
use crate::layout::{Layout, LayoutParams};
use crate::superblock::{MAGIC, SUPERBLOCK_SIZE};
use proptest::prelude::*;
use zerocopy::FromBytes;

fn use_everything(g: &Geometry) {
    for group in [0, 1, 2, g.groups / 2, g.groups - 1].map(GroupNr) {
        let (b, o) = g.desc_location(group);
        assert!(o + u32::from(g.desc_size) <= g.block_size);
        let _ = (b, g.blocks_in_group(group), g.flex_of(group));
        let _ = (g.group_base_meta_blocks(group), g.inode_nr(group, 0));
    }
    let _ = (
        g.itable_blocks(),
        g.max_file_size(true),
        g.max_file_size(false),
    );
    let last = BlockNr(g.blocks_count - 1);
    assert_eq!(g.group_of_block(last).unwrap().0.0, g.groups - 1);
    assert!(!g.is_valid_data_range(last, 2));
    assert!(!g.is_valid_data_range(last, u64::MAX));
}

/// Returns a byte string with the fields that gate the rest more often sensible than not.
fn superblock() -> impl Strategy<Value = RawSuperblock> {
    (
        proptest::collection::vec(any::<u8>(), SUPERBLOCK_SIZE),
        (0u32..9, 0u32..3, 0u32..40, 1u32..200_000),
        (0u32..70_000, any::<u32>(), any::<u32>(), any::<u32>()),
        (5u32..12, 0u32..12, any::<bool>()),
    )
        .prop_map(|(bytes, a, b, c)| {
            let mut sb = RawSuperblock::read_from_bytes(&bytes).unwrap();
            sb.magic.set(MAGIC);
            sb.log_block_size.set(a.0);
            sb.first_data_block.set(a.1);
            sb.blocks_count_hi.set(a.2);
            sb.blocks_per_group.set(a.3);
            sb.inodes_per_group.set(b.0);
            sb.feature_compat.set(b.1);
            sb.feature_incompat.set(b.2);
            sb.feature_ro_compat.set(b.3);
            sb.inode_size.set(1 << c.0);
            sb.desc_size.set(1 << c.1);
            sb.log_groups_per_flex %= 40;
            sb.reserved_gdt_blocks
                .set(sb.reserved_gdt_blocks.get() % 300);
            sb.r_blocks_count_hi.set(0);
            sb.first_ino.set(11);
            if c.2 {
                // Make the count of inodes fit, or nothing random ever gets past it.
                let bpg = u64::from(a.3);
                let groups = sb.blocks_count().saturating_sub(a.1.into()).div_ceil(bpg);
                sb.inodes_count.set((groups as u32).wrapping_mul(b.0));
            }
            sb
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), SUPERBLOCK_SIZE)) {
        let _ = RawSuperblock::parse(&bytes);
        let sb = RawSuperblock::read_from_bytes(&bytes).unwrap();
        if let Ok(g) = Geometry::new(&sb) { use_everything(&g); }
    }

    #[test]
    fn nearly_sensible_superblocks_never_panic(sb in superblock()) {
        if let Ok(g) = Geometry::new(&sb) { use_everything(&g); }
    }

    #[test]
    fn one_field_of_a_good_superblock_damaged(at in 0usize..1023, v in any::<u16>()) {
        let good = Layout::new(&LayoutParams::for_size(64 << 20)).unwrap().superblock;
        let mut bytes = *good.bytes();
        bytes[at..at + 2].copy_from_slice(&v.to_le_bytes());
        let sb = RawSuperblock::read_from_bytes(&bytes).unwrap();
        if let Ok(g) = Geometry::new(&sb) { use_everything(&g); }
    }
}

#[test]
fn backups_are_in_powers_of_three_five_seven() {
    let g = Layout::new(&LayoutParams::for_size(100 << 30))
        .unwrap()
        .geometry;
    let with: Vec<u32> = (0..130).filter(|&n| g.has_super(GroupNr(n))).collect();
    assert_eq!(with, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
}

#[test]
fn ranges_over_descriptors_are_no_data() {
    let g = Layout::new(&LayoutParams::for_size(1 << 30))
        .unwrap()
        .geometry;
    assert!(!g.is_valid_data_range(BlockNr(0), 1));
    let base = u64::from(g.group_base_meta_blocks(GroupNr(1)));
    assert!(base > 2);
    assert!(!g.is_valid_data_range(BlockNr(32768 + base - 1), 1));
    assert!(g.is_valid_data_range(BlockNr(32768 + base), 1));
    assert!(!g.is_valid_data_range(BlockNr(32767), 2));
    assert!(g.is_valid_data_range(BlockNr(65535), 2)); // no backup in group 2
    assert!(!g.is_valid_data_range(BlockNr(32767), 40_000));
}

#[test]
fn a_block_comes_before_the_superblock_of_small_blocks_in_clusters() {
    let params = LayoutParams {
        block_size: 1024,
        ..LayoutParams::for_size(64 << 20)
    };
    let mut g = Layout::new(&params).unwrap().geometry;
    let base = g.group_base_meta_blocks(GroupNr(0));
    assert_eq!((g.first_data_block, g.superblock_place()), (1, BlockNr(1)));
    g.first_data_block = 0;
    g.cluster_ratio = 16;
    assert_eq!(g.group_base_meta_blocks(GroupNr(0)), base + 1);
    assert_eq!(g.group_base_meta_blocks(GroupNr(1)), base);
    assert_eq!(
        (g.cluster_start(3), g.sectors_per_cluster()),
        (BlockNr(48), 32)
    );
    assert_eq!(g.cluster_of(BlockNr(63)), 3);
}
