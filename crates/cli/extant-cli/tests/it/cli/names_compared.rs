//! Command lines with unusual values, by both implementations: equal exit codes, equal fields of the superblock, and no
//! change of an image that e2fsprogs leaves unchanged. The calls that the documentation lists as different have both codes.

use crate::cli::called::{ScriptDir, clean, told};
use std::process::Command;

/// Images that the lines start from, by the options of mke2fs.
const IMAGES: &[(&str, &str)] = &[
    ("ext4", "-t ext4 -d tree i.img 32M"),
    ("ext2", "-t ext2 -d tree i.img 16M"),
    ("mmp", "-t ext4 -O mmp i.img 16M"),
    ("4k", "-t ext4 -b 4096 i.img 256M"),
    ("quota", "-t ext4 -O quota -d tree i.img 16M"),
];

/// The image, or `new` for none, and the line.
const LINES: &[(&str, &str)] = &[
    ("new", "mke2fs -q -t ext2 -O metadata_csum_seed i.img 8M"),
    (
        "new",
        "mke2fs -q -t ext4 -O metadata_csum_seed,^metadata_csum i.img 8M",
    ),
    ("new", "mke2fs -q -t ext4 -O metadata_csum_seed i.img 8M"),
    ("new", "mke2fs -q -t ext2 -G 4 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -O ^flex_bg -G 4 i.img 8M"),
    ("new", "mke2fs -q -t ext2 -O flex_bg -G 4 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -G 3 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -G -1 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -G 4294967296 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -E mmp_update_interval=7 i.img 8M"),
    (
        "new",
        "mke2fs -q -t ext4 -O mmp -E mmp_update_interval=x i.img 8M",
    ),
    ("new", "mke2fs -q i.img 0x2000"),
    ("new", "mke2fs -q i.img 020000"),
    ("new", "mke2fs -q i.img 8MM"),
    ("new", "mke2fs -q -b 4K i.img 2048"),
    ("new", "mke2fs -q -b 8192 i.img 8M"),
    ("new", "mke2fs -q -F -b 8192 i.img 8M"),
    ("new", "mke2fs -q -b -512 i.img 8M"),
    ("new", "mke2fs -q -b 1024 -b 4096 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -t ext2 i.img 8M"),
    ("new", "mke2fs -q -T small -T news i.img 8M"),
    ("new", "mke2fs -q -t ext5 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -O ^has_journal -j i.img 16M"),
    ("new", "mke2fs -q -t ext4 -J size=0 i.img 16M"),
    ("new", "mke2fs -q -t ext4 -J size=4 -J size=8 i.img 32M"),
    ("new", "mke2fs -q -t ext4 -J size=4,location=4M i.img 64M"),
    ("new", "mke2fs -q -t ext4 -J size=x i.img 16M"),
    ("new", "mke2fs -q -t ext4 -N -1 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -N 1k i.img 8M"),
    ("new", "mke2fs -q -t ext4 -N 4294967296 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -i 512 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -i 67108864 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -i 67108865 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -i 2048 -N 100 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -b 4096 -i 2048 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -N 8184 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -N 8185 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -N 8192 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -N 8193 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -N 20000 i.img 32M"),
    ("new", "mke2fs -q -t ext4 -N '' i.img 8M"),
    ("new", "mke2fs -q -t ext4 -N 64 -N '' i.img 8M"),
    ("new", "mke2fs -q -t ext4 -I '' i.img 8M"),
    ("new", "mke2fs -q -t ext4 -g '' i.img 8M"),
    ("new", "mke2fs -q -t ext4 -m '' i.img 8M"),
    ("new", "mke2fs -q -t ext4 -i '' i.img 8M"),
    ("new", "mke2fs -q -t ext4 -g 256 i.img 8M"),
    ("new", "mke2fs -q -t ext2 -g 256 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -g 336 i.img 16M"),
    ("new", "mke2fs -q -t ext4 -g 344 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -b 2048 -g 504 i.img 64M"),
    ("new", "mke2fs -q -t ext4 -b 4096 -g 256 i.img 32M"),
    ("new", "mke2fs -q -t ext4 -O ^resize_inode -g 256 i.img 1G"),
    ("new", "mke2fs -q -t ext4 -g 256 -d tree i.img 8M"),
    ("new", "mke2fs -q -t ext4 -N 64 -N 0 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -N 0 -N 64 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -i 2048 -N 64 -N 0 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -N 64 -i 2048 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -N +64 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -N -0 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -i +2048 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -I 128 -I 0 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -I +128 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -g 1024 -g 0 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -G +4 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -b +2048 i.img 8M"),
    ("new", "mke2fs -q -t ext4 i.img 16384S"),
    ("new", "mke2fs -q -t ext4 i.img 16384s"),
    ("new", "mke2fs -q -t ext4 i.img +8M"),
    ("new", "mke2fs -q -t ext4 -L =a i.img 8M"),
    ("new", "mke2fs -q -t ext4 -I 0 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -I x i.img 8M"),
    ("new", "mke2fs -q -t ext4 -m 51 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -m -1 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -m 5% i.img 8M"),
    ("new", "mke2fs -q -t ext4 -g 0 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -g 4K i.img 8M"),
    ("new", "mke2fs -q -t ext4 -L '' i.img 8M"),
    ("new", "mke2fs -q -t ext4 -L a -L b i.img 8M"),
    ("new", "mke2fs -q -t ext4 -U x i.img 8M"),
    ("new", "mke2fs -q -t ext4 -e foo i.img 8M"),
    ("new", "mke2fs -q -t ext4 -s 1 i.img 8M"),
    ("new", "mke2fs -q -t ext4 -d '' i.img 8M"),
    ("new", "mke2fs -q -o hurd i.img 8M"),
    ("new", "mke2fs ''"),
    ("ext4", "tune2fs -j i.img"),
    ("ext4", "tune2fs -J size=4 i.img"),
    ("ext4", "tune2fs -O ^has_journal -J size=8 i.img"),
    ("ext2", "tune2fs -j -j i.img"),
    ("ext2", "tune2fs -J '' i.img"),
    ("ext4", "tune2fs -O ^64bit i.img"),
    ("ext2", "tune2fs -O 64bit i.img"),
    ("ext4", "tune2fs -O ^64bit,large_dir i.img"),
    ("ext4", "tune2fs -O 64bit i.img"),
    ("ext4", "tune2fs -O ^large_dir i.img"),
    ("ext4", "tune2fs -O ^encrypt i.img"),
    ("ext4", "tune2fs -O '' i.img"),
    ("ext4", "tune2fs -O , i.img"),
    ("ext4", "tune2fs -O ^foo i.img"),
    ("ext4", "tune2fs -O large_dir -O verity i.img"),
    ("ext4", "tune2fs -O '' -O large_dir i.img"),
    ("ext4", "tune2fs -s 1 -O large_dir i.img"),
    ("ext4", "tune2fs -O large_dir -s 1 i.img"),
    ("ext4", "tune2fs -s 1 i.img"),
    ("ext4", "tune2fs -s -1 i.img"),
    ("ext4", "tune2fs -s +1 i.img"),
    ("ext4", "tune2fs -s 2x i.img"),
    ("ext4", "tune2fs -s '' i.img"),
    ("quota", "tune2fs -O ^quota i.img"),
    ("ext4", "tune2fs -Q usrquota -Q grpquota i.img"),
    ("ext4", "tune2fs -Q ^usrquota -Q usrquota i.img"),
    ("ext4", "tune2fs -Q x -Q usrquota i.img"),
    ("ext4", "tune2fs -Q '' i.img"),
    ("ext2", "tune2fs -J size=4 -J fast_commit_size=256 i.img"),
    ("ext2", "tune2fs -J fast_commit_size=256 i.img"),
    ("ext2", "tune2fs -J fast_commit_size=x i.img"),
    ("ext2", "tune2fs -J size=4 -J size=5 i.img"),
    ("ext2", "tune2fs -J size=4 -J size=0 i.img"),
    ("ext2", "tune2fs -J '' -J size=4 i.img"),
    ("ext4", "tune2fs -J '' -J size=4 i.img"),
    ("ext4", "tune2fs -o acl -o user_xattr i.img"),
    ("ext4", "tune2fs -o '' -o user_xattr i.img"),
    ("ext4", "tune2fs -E stride=4 -E stripe_width=8 i.img"),
    ("ext4", "tune2fs -E stride=4 -E '' i.img"),
    ("mmp", "tune2fs -E clear_mmp i.img"),
    ("ext4", "tune2fs -L '' i.img"),
    ("ext4", "tune2fs -L a -L b i.img"),
    ("ext4", "tune2fs -L '' -L x i.img"),
    ("ext4", "tune2fs -L =x i.img"),
    ("ext4", "e2label i.img =x"),
    ("ext4", "e2label i.img ''"),
    ("ext4", "e2label i.img averyverylonglabelindeed"),
    ("ext4", "e2label i.img a b"),
    ("ext4", "e2label i.img -x"),
    ("ext4", "e2label -V"),
    ("new", "e2label i.img x"),
    ("ext4", "tune2fs -M '' i.img"),
    ("ext4", "tune2fs -M '' -M x i.img"),
    ("ext4", "tune2fs -M x -M '' i.img"),
    ("ext4", "tune2fs -U '' i.img"),
    ("ext4", "tune2fs -U random -U clear i.img"),
    ("ext4", "tune2fs -c 16001 i.img"),
    ("ext4", "tune2fs -c +5 i.img"),
    ("ext4", "tune2fs -c ' 0x5' i.img"),
    ("ext4", "tune2fs -c -1 i.img"),
    ("ext4", "tune2fs -c -16001 i.img"),
    ("ext4", "tune2fs -c '' i.img"),
    ("ext4", "tune2fs -c random i.img"),
    ("ext4", "tune2fs -c x i.img"),
    ("ext4", "tune2fs -C 16001 i.img"),
    ("ext4", "tune2fs -C -1 i.img"),
    ("ext4", "tune2fs -C -99999 i.img"),
    ("ext4", "tune2fs -C +5 i.img"),
    ("ext4", "tune2fs -C '' i.img"),
    ("ext4", "tune2fs -m 5% i.img"),
    ("ext4", "tune2fs -r -1 i.img"),
    ("ext4", "tune2fs -s x i.img"),
    ("ext4", "tune2fs -o '' i.img"),
    ("ext4", "tune2fs -E '' i.img"),
    ("ext4", "tune2fs -I 256 i.img"),
    ("ext4", "tune2fs -I x i.img"),
    ("ext4", "tune2fs -T '' i.img"),
    ("ext4", "tune2fs -f i.img"),
    ("ext4", "tune2fs i.img"),
    ("4k", "e2fsck -fy -b 8193 i.img"),
    ("4k", "e2fsck -fn -b 8193 i.img"),
    ("4k", "e2fsck -p -b 8193 i.img"),
    ("ext4", "e2fsck -fn -E fixes_only i.img"),
    ("ext4", "e2fsck -fy -E fixes_only,bmap2extent i.img"),
    ("ext4", "e2fsck -fyD -E fixes_only i.img"),
    ("ext4", "e2fsck -fn -b 0x0 i.img"),
    ("ext2", "e2fsck -fy -E bmap2extent i.img"),
    (
        "ext4",
        "debugfs -w -R 'clri /etc/motd' i.img; e2fsck -fp i.img",
    ),
    (
        "ext4",
        "debugfs -w -R 'clri /etc/motd' i.img; e2fsck -fp i.img; e2fsck -fn i.img",
    ),
    (
        "ext2",
        "debugfs -w -R 'sif /large links_count 0' i.img; e2fsck -fp i.img",
    ),
    (
        "ext2",
        "debugfs -w -R 'sif /large links_count 0' i.img; e2fsck -fp i.img; e2fsck -fn i.img",
    ),
    (
        "ext4",
        "rm -f undo; tune2fs -z undo -L x i.img; e2undo undo i.img",
    ),
    (
        "ext4",
        "rm -f undo; tune2fs -z undo -L x i.img; e2undo -n undo i.img",
    ),
    (
        "ext4",
        "rm -f undo; tune2fs -z undo -L x i.img; e2undo -v undo i.img",
    ),
    (
        "ext4",
        "rm -f undo; tune2fs -z undo -L x i.img; tune2fs -L y i.img; e2undo undo i.img",
    ),
    (
        "ext4",
        "rm -f undo; tune2fs -z undo -L x i.img; e2undo -o x undo i.img",
    ),
    (
        "ext4",
        "rm -f undo; tune2fs -z undo -L x i.img; e2undo -z undo undo i.img",
    ),
    ("ext4", "e2undo none i.img"),
    ("ext4", "echo x >undo; e2undo -f undo i.img"),
    ("ext4", "e2undo -x"),
    ("ext4", "e2fsck -fy -l none i.img"),
    ("ext4", "resize2fs -f i.img 0x6000"),
    ("ext4", "resize2fs -f i.img 060000"),
    ("ext4", "resize2fs -f i.img 49152s"),
    ("ext4", "resize2fs -f i.img 49152S"),
    ("ext4", "resize2fs -f i.img +24M"),
    ("ext4", "resize2fs -f i.img x"),
    ("ext4", "resize2fs -bs i.img"),
    ("ext2", "resize2fs -b i.img"),
    ("ext4", "resize2fs -f i.img 24MB"),
];

/// The calls that the documentation lists as different (docs/how-to/e2fsprogs.md, "Other results"): the image, the script,
/// the code of e2fsprogs, and the code of these names.
const DIFFERENT: &[(&str, &str, i32, i32)] = &[
    (
        "new",
        "mke2fs -q -t ext4 -O mmp -E mmp_update_interval=301 i.img 8M",
        1,
        1,
    ),
    ("new", "mke2fs -q -t ext2 -O fast_commit i.img 16M", 0, 1),
    ("ext2", "tune2fs -O fast_commit i.img", 0, 1),
    ("new", "mke2fs -q -t ext4 -d tree i.img", 1, 0),
    ("new", "mke2fs -q i.img 60", 1, 0),
    ("4k", "e2fsck -fy -b 32768 i.img", 1, 0),
    ("4k", "e2fsck -fn -b 32768 i.img", 4, 0),
    (
        "ext4",
        "dd if=/dev/zero of=i.img bs=1024 count=2 conv=notrunc status=none; e2fsck -p i.img",
        8,
        1,
    ),
    ("ext4", "truncate -s 20M i.img; e2fsck -p i.img", 4, 8),
    ("ext4", "e2fsck -fy -b x i.img", 1, 16),
    ("ext4", "e2fsck -fy -C x i.img", 1, 16),
    ("ext4", "e2fsck -fy -P x i.img", 1, 16),
    ("ext4", "e2fsck -fy -E x i.img", 1, 16),
    ("ext4", "e2fsck -fy -B x i.img", 0, 16),
    ("ext4", "tune2fs -I 512 i.img", 1, 0),
    (
        "ext4",
        "tune2fs -O ^resize_inode i.img; dumpe2fs -h i.img | grep 'state: *clean'",
        1,
        0,
    ),
    (
        "ext4",
        "tune2fs -O ^filetype i.img; dumpe2fs -h i.img | grep 'state: *clean'",
        1,
        0,
    ),
    ("ext4", "truncate -s 20M i.img; tune2fs -L x i.img", 0, 1),
    (
        "ext4",
        "debugfs -w -R 'clri <2>' i.img; resize2fs -f i.img 24M",
        0,
        1,
    ),
    ("ext4", "tune2fs -u 70000 i.img", 0, 1),
    ("ext4", "debugfs -w -R 'mkdir etc' i.img", 0, 1),
    ("ext4", "debugfs -w -R 'mknod etc p' i.img", 0, 1),
    ("ext4", "debugfs -w -R 'symlink etc x' i.img", 0, 1),
    ("ext4", "debugfs -w -R 'unlink etc' i.img", 0, 1),
    (
        "ext4",
        "debugfs -w -R 'sif /large generation 5' i.img",
        0,
        1,
    ),
    ("ext4", "debugfs -w -R 'sif /large projid 5' i.img", 0, 1),
    (
        "ext4",
        "rm -f undo; tune2fs -z undo -L x i.img; e2undo -h undo",
        1,
        0,
    ),
    ("ext4", "resize2fs -M i.img 32M", 0, 1),
    ("ext4", "resize2fs -s i.img 24M", 0, 0),
    (
        "4k",
        "printf U | dd of=i.img bs=4096 seek=33 conv=notrunc status=none; dumpe2fs i.img",
        156,
        0,
    ),
    (
        "ext4",
        "dd if=/dev/zero of=i.img bs=1024 count=2 conv=notrunc status=none; dumpe2fs i.img",
        19,
        1,
    ),
    ("ext4", "truncate -s 1K i.img; dumpe2fs i.img", 36, 1),
];

fn header(place: &ScriptDir) -> String {
    const KEPT: [&str; 16] = [
        "Filesystem volume name",
        "Last mounted on",
        "Default mount options",
        "Filesystem features",
        "Inode count",
        "Block count",
        "Block size",
        "Blocks per group",
        "Inode size",
        "RAID stride",
        "User quota inode",
        "Group quota inode",
        "Flex block group size",
        "Total journal size",
        "Maximum mount count",
        "Mount count",
    ];
    let mut dumpe2fs = Command::new("dumpe2fs");
    let out = dumpe2fs.arg("-h").arg(place.image("i.img")).output();
    let text = String::from_utf8_lossy(&out.unwrap().stdout).into_owned();
    let is_kept = |line: &&str| KEPT.iter().any(|name| line.starts_with(name));
    text.lines().filter(is_kept).collect::<Vec<_>>().join("\n")
}

/// Makes the images that the lines start from.
fn make_images(place: &ScriptDir) {
    for (name, options) in IMAGES {
        let made = place.theirs(&format!("mke2fs -q {options}; mv i.img {name}.kept"));
        assert!(made.status.success(), "{name}: {}", told(&made));
    }
}

/// Returns the command that puts an image, or `new` for none, in place.
fn start(image: &str) -> String {
    match image {
        "new" => "rm -f i.img".to_owned(),
        name => format!("cp --sparse=always {name}.kept i.img"),
    }
}

#[test]
fn different_results_are_those_of_the_documentation() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    make_images(&place);
    let mut wrong = Vec::new();
    for (image, line, of_theirs, of_ours) in DIFFERENT {
        let script = format!("{}; {line}", start(image));
        let (theirs, ours) = (place.theirs(&script), place.ours(&script));
        if (theirs.status.code(), ours.status.code()) != (Some(*of_theirs), Some(*of_ours)) {
            wrong.push(format!(
                "{line}:\n{:?} {}\n{:?} {}",
                theirs.status.code(),
                told(&theirs),
                ours.status.code(),
                told(&ours)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Messages of mistakes name the options of the called program, and not those of a command of `extant`.
#[test]
fn mistakes_name_the_options_of_the_called_name() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    make_images(&place);
    for (line, said) in [
        ("tune2fs -r x i.img", "tune2fs: -r x: "),
        ("tune2fs -I x i.img", "tune2fs: -I x: "),
        ("mke2fs -U x i.img 8M", "mke2fs: -U x: "),
    ] {
        let ours = place.ours(&format!("{}; {line}", start("ext4")));
        assert_eq!(ours.status.code(), Some(1), "{line}: {}", told(&ours));
        let told = told(&ours);
        assert!(
            told.contains(said) && !told.contains("extant "),
            "{line}: {told}"
        );
    }
}

#[test]
fn unusual_values_end_like_those_of_e2fsprogs() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    make_images(&place);
    let mut wrong = Vec::new();
    for (image, line) in LINES {
        let start = start(image);
        // A file that mke2fs made, but did not fill, is no image.
        let script = format!(
            "{start}; code=0; ({line}) || code=$?; if cmp -s {image}.kept i.img; then echo unchanged; fi; exit $code"
        );
        let answers = [true, false].map(|is_theirs| {
            let out = if is_theirs {
                place.theirs(&script)
            } else {
                place.ours(&script)
            };
            let is_unchanged = told(&out).contains("unchanged");
            let made = if out.status.success() && !line.contains("random") {
                clean(&place.image("i.img"));
                header(&place)
            } else {
                String::new()
            };
            ((out.status.code(), made), is_unchanged, told(&out))
        });
        let [
            (theirs, is_unchanged, their_words),
            (ours, ours_unchanged, our_words),
        ] = answers;
        // e2fsprogs writes the superblock again where nothing else changes.
        if theirs != ours || is_unchanged && !ours_unchanged {
            wrong.push(format!(
                "{line}:\n{theirs:?} {their_words}\n{ours:?} {our_words}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Options whose value cannot be used are refused before anything is written.
#[test]
fn a_refused_call_leaves_no_image() {
    let Some(place) = ScriptDir::new() else {
        return;
    };
    for (line, reason) in [
        (
            "mke2fs -q -t ext4 -O mmp -E mmp_update_interval=301 i.img 8M",
            "301",
        ),
        ("mke2fs -q -t ext2 -O fast_commit i.img 16M", "fast_commit"),
        ("mke2fs -q -t ext2 -G 4 i.img 8M", "flex_bg"),
        (
            "mke2fs -q -t ext2 -O metadata_csum_seed i.img 8M",
            "metadata_csum",
        ),
    ] {
        let ours = place.ours(&format!("rm -f i.img; {line}"));
        assert_eq!(ours.status.code(), Some(1), "{line}: {}", told(&ours));
        assert!(told(&ours).contains(reason), "{line}: {}", told(&ours));
        assert!(!place.image("i.img").exists(), "{line}");
    }
    let warned = place.ours("rm -f i.img; mke2fs -q -t ext4 -E mmp_update_interval=7 i.img 8M");
    assert!(warned.status.success(), "{}", told(&warned));
    assert!(told(&warned).contains("no effect"), "{}", told(&warned));
}
