//! Hostile images: whatever the bytes are, the worst outcome is an error. The engine must not panic, hang, access bytes
//! outside the device, or use more memory than for an honest image.

mod campaign;
mod inline;
mod records;
mod refused;
mod values;

use campaign::Campaign;

macro_rules! campaigns {
    ($($name:ident $dirty:ident $sealed:ident $($weight:literal)? : $($arg:expr),*;)*) => { $(
        #[test]
        fn $name() {
            let weight = 1 $(* $weight)?;
            Campaign {
                name: stringify!($name),
                args: &[$($arg),*],
                dirty: stringify!($dirty) == "dirty",
                sealed: stringify!($sealed) == "sealed",
            }
            .run(weight * 25, weight * 2_500);
        }
    )* };
}

// Every broken block is parsed if the image has no checksums. With checksums only blocks sealed again are parsed.
campaigns! {
    no_checksums clean open 2: "-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "^metadata_csum,^uninit_bg";
    no_checksums_4k clean open: "-t", "ext4", "-J", "size=4", "-O", "^metadata_csum,^uninit_bg";
    no_checksums_journal dirty open: "-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "^metadata_csum,^uninit_bg";
    block_maps clean open: "-t", "ext3", "-b", "1024", "-J", "size=1";
    small_inodes_no_journal clean open: "-t", "ext2", "-b", "1024";
    checksums clean open: "-t", "ext4", "-b", "1024", "-J", "size=1";
    checksums_journal dirty open: "-t", "ext4", "-b", "1024", "-J", "size=1";
    sealed clean sealed 2: "-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "metadata_csum,64bit,orphan_file";
    sealed_4k clean sealed: "-t", "ext4", "-J", "size=4", "-O", "metadata_csum,64bit,orphan_file";
    sealed_journal dirty sealed 2: "-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "metadata_csum,64bit,orphan_file";
    sealed_narrow dirty sealed: "-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "metadata_csum,^64bit,^orphan_file";
    sealed_seed clean sealed: "-t", "ext4", "-b", "2048", "-J", "size=2", "-O", "metadata_csum,metadata_csum_seed,^has_journal";
}

#[test]
fn sealing_what_is_whole_changes_nothing() {
    for (features, dirty) in [
        ("metadata_csum,64bit,orphan_file", true),
        ("metadata_csum,^64bit,^orphan_file", true),
        (
            "metadata_csum,metadata_csum_seed,meta_bg,^resize_inode",
            false,
        ),
        ("^metadata_csum", true),
    ] {
        let args = ["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", features];
        Campaign {
            name: features,
            args: &args,
            dirty,
            sealed: true,
        }
        .sealing_is_right();
    }
}
