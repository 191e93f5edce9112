//! Blocks of attributes.

use crate::it::debugfs::Image;

#[test]
fn a_block_of_attributes_that_a_file_claims_is_copied() {
    needs::tools!("mke2fs", "e2fsck", "debugfs");
    for features in [
        "^extent,^64bit",
        "^extent,^64bit,^metadata_csum,^metadata_csum_seed",
    ] {
        let image = Image::new("16M", 1024, &["-I", "128", "-O", features]);
        for name in ["first", "second", "third"] {
            image.write(name, &[b'x'; 900]);
        }
        let value = image.beside("value", &[b'v'; 300]);
        image.change(&[&format!("ea_set -f {} second user.note", value.display())]);
        let said = image.ask("stat second");
        let (_, block) = said.split_once("File ACL: ").unwrap();
        let block = block.split_whitespace().next().unwrap();
        // A second inode shares the block.
        image.change(&[&format!("sif third file_acl {block}")]);
        image.run("e2fsck", &["-fy"]);
        image.assert_clean(features);
        image.change(&[&format!("sif first block[0] {block}")]);
        let plan = image.mend("a block of attributes in a file");
        assert!(
            image.ask("ea_get second user.note").contains("vvv"),
            "{plan:#?}"
        );
        assert!(
            image.ask("ea_get third user.note").contains("vvv"),
            "{plan:#?}"
        );
    }
}
