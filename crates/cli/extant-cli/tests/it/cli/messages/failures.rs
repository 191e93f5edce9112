//! Commands that fail on the image, the file or the host.

use super::Row;

pub(super) const TABLE: &[Row] = &[
    (
        "push disk.img ./disk.img",
        1,
        "disk.img and ./disk.img are the same file",
    ),
    (
        "ls none.img",
        1,
        "none.img: no such file or directory: extant mkfs makes a new image",
    ),
    (
        "ls none.img:/",
        1,
        "none.img: no such file or directory: extant mkfs makes a new image",
    ),
    (
        "ls file",
        1,
        "file: not an ext2/ext3/ext4 file system: too short for a superblock: file file may tell what it is",
    ),
    (
        "ls empty",
        1,
        "empty: not an ext2/ext3/ext4 file system: too short for a superblock: it holds nothing: extant mkfs empty makes a file system in it",
    ),
    (
        "ls junk",
        1,
        "junk: not an ext2/ext3/ext4 file system: no magic number in the superblock: file junk may tell what it is",
    ),
    (
        "ls zero",
        1,
        "zero: not an ext2/ext3/ext4 file system: no magic number in the superblock: it holds nothing: extant mkfs zero makes a file system in it",
    ),
    (
        "check empty",
        8,
        "empty: reading the superblock: not an ext2/ext3/ext4 file system: too short for a superblock",
    ),
    (
        "repair -y file",
        8,
        "file: not an ext2/ext3/ext4 file system: too short for a superblock",
    ),
    (
        "tune empty -L x",
        1,
        "empty: not an ext2/ext3/ext4 file system: too short for a superblock",
    ),
    (
        "resize file 8M",
        1,
        "file: not an ext2/ext3/ext4 file system: too short for a superblock",
    ),
    ("ls disk.qcow2", 1, "disk.qcow2: qcow2 v0 is not supported"),
    (
        "ls pc.img",
        1,
        "pc.img: not an ext2/ext3/ext4 file system: no magic number in the superblock: it begins with an MBR partition table: extant info pc.img lists its partitions, pc.img@p1 is the first",
    ),
    (
        "ls a.tar",
        1,
        "a.tar: not an ext2/ext3/ext4 file system: no magic number in the superblock: it holds a tar archive: extant mkfs IMAGE --from a.tar makes an image of an archive",
    ),
    (
        "ls dir",
        1,
        "dir: neither a regular file nor a block device: a path in an image is IMAGE:/PATH; extant mkfs IMAGE --from dir makes an image of a directory",
    ),
    (
        "ls fold.img",
        1,
        "fold.img: unsupported incompatible feature: casefold with encrypt: extant inspect and check read it; Linux can mount fold.img, and extant import brings its files into a new image",
    ),
    (
        "ls journal.img",
        1,
        "journal.img: unsupported incompatible feature: journal_dev (an external journal)",
    ),
    (
        "tune apart.img -U random",
        1,
        "apart.img: its journal is on another device: tune2fs -O ^has_journal of e2fsprogs removes it",
    ),
    (
        "defrag apart.img",
        1,
        "apart.img: its journal is on another device: tune2fs -O ^has_journal of e2fsprogs removes it",
    ),
    (
        "resize apart.img 20M",
        1,
        "apart.img: a volume with an external journal cannot be resized",
    ),
    (
        "ls disk.img/d",
        1,
        "disk.img/d: Not a directory: write disk.img:/d",
    ),
    (
        "ls disk.img:/*.x",
        1,
        "disk.img:/*.x: no name matches this pattern: see extant ls disk.img:/",
    ),
    (
        "ls disk.img:/none",
        1,
        "disk.img:/none: no such file or directory: see extant ls disk.img:/",
    ),
    (
        "cat disk.img:/d",
        1,
        "disk.img:/d: is a directory: extant ls disk.img:/d lists it",
    ),
    (
        "cat disk.img:/none",
        1,
        "disk.img:/none: no such file or directory: see extant ls disk.img:/",
    ),
    (
        "cat disk.img:/d/f/x",
        1,
        "disk.img:/d/f/x: not a directory: disk.img:/d/f is not a directory",
    ),
    (
        "cat disk.img:/dangling",
        1,
        "disk.img:/dangling: no such file or directory: it is a symbolic link to /nowhere, which does not exist",
    ),
    (
        "cat disk.img:/loop",
        1,
        "disk.img:/loop: too many levels of symbolic links: extant ls -l disk.img:/loop shows where it leads",
    ),
    (
        "cat disk.img:<99999>",
        1,
        "disk.img:<99999>: there is no inode 99999: this image has those from 2 to 8192",
    ),
    (
        "cat disk.img:<500>",
        1,
        "disk.img:<500>: inode 500 is free: extant ls -Ri lists those in use",
    ),
    (
        "cat disk.img:<8>",
        1,
        r#"disk.img:<8>: inode 8 is the file system's own: files have the numbers 2 and 11 to 8192"#,
    ),
    (
        "stat disk.img:/a/b/c",
        1,
        "disk.img:/a/b/c: no such file or directory: see extant ls disk.img:/",
    ),
    (
        "tree disk.img:/d/f",
        1,
        "disk.img:/d/f: not a directory: it is a regular file",
    ),
    (
        "cp file other",
        1,
        "none of the paths is in an image: write IMAGE:/path",
    ),
    (
        "cp file disk.img",
        1,
        "none of the paths is in an image: write disk.img:/",
    ),
    (
        "cp none disk.img:/",
        1,
        r#"none: no such file or directory: paths in an image begin with IMAGE:/, others are the host's"#,
    ),
    ("cp dir disk.img:/", 1, "dir: is a directory: use -r"),
    (
        "cp file disk.img:/none/x",
        1,
        "disk.img:/none/x: no such file or directory: extant mkdir -p disk.img:/none makes its directory",
    ),
    (
        "cp file disk.img:/d/f/x",
        1,
        "disk.img:/d/f/x: not a directory: disk.img:/d/f is none",
    ),
    (
        "cp disk.img:/none out",
        1,
        "disk.img:/none: no such file or directory: see extant ls disk.img:/",
    ),
    (
        "cp disk.img:/d out",
        1,
        "disk.img:/d: is a directory: use -r",
    ),
    (
        "cp disk.img:/d/f disk.img:/d/f",
        1,
        "disk.img:/d/f and disk.img:/d/f are the same file",
    ),
    (
        "cp -r disk.img:/d disk.img:/d/x",
        1,
        "disk.img:/d: cannot be copied into itself, disk.img:/d/x",
    ),
    (
        "cp disk.img:/d/f none/x",
        1,
        "none/x: no such file or directory: mkdir -p none makes its directory",
    ),
    (
        "cp disk.img:/d/f disk.img:/d disk.img:/new",
        1,
        "disk.img:/new: not a directory, and there are several to copy",
    ),
    (
        "cp - disk.img:/d",
        1,
        "disk.img:/d: is a directory, and standard input has no name: write disk.img:/d/NAME",
    ),
    (
        "cp big small.img:/",
        1,
        "small.img:/big: no space left on device: no block left for file data: extant df shows what is free, extant resize makes an image larger",
    ),
    (
        "mv disk.img:/d/f file",
        1,
        "file: not in an image: use cp -a, then remove the source",
    ),
    (
        "mv disk.img:/none disk.img:/x",
        1,
        "disk.img:/none: no such file or directory: see extant ls disk.img:/",
    ),
    (
        "mv disk.img:/d/f disk.img:/none/x",
        1,
        "disk.img:/d/f to disk.img:/none/x: no such file or directory: extant mkdir -p disk.img:/none makes its directory",
    ),
    (
        "mv disk.img:/d/f other.img:/",
        1,
        "disk.img:/d/f: in another image than other.img:/: use cp -a, then rm -r",
    ),
    (
        "mv disk.img:/d disk.img:/d/x",
        1,
        "disk.img:/d to disk.img:/d/x: invalid argument: a directory cannot move below itself",
    ),
    (
        "mv -n disk.img:/d/f disk.img:/dangling",
        1,
        "disk.img:/d/f to disk.img:/dangling: file exists: without -n it is replaced",
    ),
    (
        "mv disk.img:/d/f disk.img:/d/../d/f",
        1,
        "disk.img:/d/f and disk.img:/d/../d/f are the same file",
    ),
    (
        "ln -f disk.img:/d/f disk.img:/dirlink",
        1,
        "disk.img:/d/f and disk.img:/dirlink/f are the same file",
    ),
    (
        "rm -rf disk.img:/dirlink/",
        1,
        "disk.img:/dirlink/: symbolic link to a directory: omit the final slash to remove the link",
    ),
    ("rm disk.img:/d", 1, "disk.img:/d: is a directory: use -r"),
    (
        "rm disk.img:/none",
        1,
        "disk.img:/none: no such file or directory: see extant ls disk.img:/",
    ),
    (
        "rm disk.img:/",
        1,
        "disk.img:/: a path that ends in the root, . or .. is not removed: name what is in it, as /*",
    ),
    (
        "rm -d disk.img:/d",
        1,
        "disk.img:/d: directory not empty: use -r",
    ),
    (
        "rm disk.img:<12>",
        1,
        "disk.img:<12>: a name is needed, not a number: `extant ls -Ri disk.img:` shows which names lead to inode 12",
    ),
    (
        "mkdir disk.img:/d",
        1,
        "disk.img:/d: file exists: with -p a directory may be there",
    ),
    (
        "mkdir disk.img:/a/b",
        1,
        "disk.img:/a/b: no such file or directory: extant mkdir -p disk.img:/a makes its directory",
    ),
    (
        "mkdir inline.img:/x",
        1,
        "inline.img: read-only file system: the feature inline_data can be read, not written: extant mkfs NEW.img --from inline.img makes an image without it",
    ),
    (
        "mkdir ea.img:/x",
        1,
        "ea.img: read-only file system: the feature ea_inode can be read, not written: extant mkfs NEW.img --from ea.img makes an image without it",
    ),
    (
        "mount ea.img mnt",
        1,
        "ea.img: read-only file system: the feature ea_inode can be read, not written; mount it with -o ro",
    ),
    (
        "mkdir bigalloc.img:/x",
        1,
        "bigalloc.img: read-only file system: feature bigalloc is not supported for writing: extant mkfs NEW.img --from bigalloc.img makes an image without it",
    ),
    (
        "mkdir quota.img:/x",
        1,
        "quota.img: read-only file system: feature quota is not supported for writing: extant tune quota.img -O ^quota takes it out",
    ),
    (
        "mkdir --noload disk.img:/x",
        1,
        "disk.img: --noload is for reading only: omit it to change the image",
    ),
    (
        "ln file disk.img:/x",
        1,
        "file: not in an image: write IMAGE:/path, or -s for a symbolic link",
    ),
    (
        "ln disk.img:/none disk.img:/x",
        1,
        "disk.img:/none: no such file or directory: see extant ls disk.img:/",
    ),
    (
        "ln disk.img:/d disk.img:/x",
        1,
        "disk.img:/d: operation not permitted: a directory has one name: use -s",
    ),
    (
        "ln -s x disk.img:/d/f",
        1,
        "disk.img:/d/f: file exists: use -f to replace it",
    ),
    (
        "ln other.img:/x disk.img:/x",
        1,
        "other.img:/x: in another image than disk.img:/x: use cp -a",
    ),
    (
        "chown bob disk.img:/d",
        1,
        r#"disk.img:/d: bob is not a number, and the image's /etc/passwd: no such file or directory: write the number"#,
    ),
    (
        "touch disk.img:/none/x",
        1,
        "disk.img:/none/x: no such file or directory: extant mkdir -p disk.img:/none makes its directory",
    ),
    (
        "getfattr -n user.x disk.img:/d",
        1,
        "disk.img:/d: user.x: no such attribute: see extant getfattr -m -",
    ),
    (
        "setfattr -n x -v 1 disk.img:/d",
        1,
        "disk.img:/d: operation not supported: attribute name space: names begin with user., trusted., security. or system.",
    ),
    (
        "setfattr -n user.x -v 0xzz disk.img:/d",
        1,
        "a value that begins with 0x is hexadecimal: write pairs of digits, as 0x00ff",
    ),
    (
        "mkfs new.img",
        1,
        "new.img: missing size: use --size 1G, or --from DIR",
    ),
    (
        "mkfs new.img --size 1K",
        1,
        "1024 bytes are too small: 24576 bytes are enough: use --size 24K",
    ),
    (
        "mkfs disk.img --size 8M",
        1,
        "disk.img: holds an ext2, ext3 or ext4 file system already: use --force to replace it",
    ),
    (
        "mkfs dir --size 8M",
        1,
        "dir: is a directory: name a file; --from makes an image of a directory",
    ),
    (
        "mkfs none/new.img --size 8M",
        1,
        "none/new.img: No such file or directory: mkdir -p none makes its directory",
    ),
    (
        "mkfs - --size 8M",
        1,
        "-: an image is read and written at many places, not from start to end: name a file",
    ),
    (
        "mkfs new.img --from none",
        1,
        "none: no such file or directory",
    ),
    (
        "mkfs new.img --from file",
        1,
        "a source is a directory or an archive (cp copies files): file: at byte 5: not an archive: shorter than a header",
    ),
    (
        "mkfs new.img --from table",
        1,
        "table: line 1: 'root' is not a number",
    ),
    (
        "mkfs new.img --from dir -J size=1",
        1,
        "cannot be represented: journal of less than 1024 blocks",
    ),
    (
        "mkfs new.img --from dir --size 10K",
        1,
        "10240 bytes are too small: 24576 bytes are enough: use --size 24K",
    ),
    (
        "mkfs new.img --size 8M -O frob",
        1,
        "-O frob: no such feature: see man 5 ext4",
    ),
    (
        "mkfs new.img --size 8M -O quota",
        1,
        "feature quota is not supported in a new file system: leave it out of -O",
    ),
    (
        "mkfs new.img --size 8M -b 3000",
        1,
        "cannot be represented: a block size that is not a power of two from 1024 to 65536",
    ),
    (
        "mkfs new.img --size 8M -L averyverylonglabelindeed",
        1,
        "cannot be represented: label of more than 16 bytes",
    ),
    (
        "mkfs new.img --size 8M --owner bob",
        1,
        "--owner: bob is not a number, and the source's /etc/passwd: not found: write the number",
    ),
    (
        "mkfs new.img --size 8M -E frob=1",
        1,
        "-E frob=1: no such option: see extant mkfs --help",
    ),
    (
        "mkfs new.img --size 8M -J 8",
        1,
        "-J 8: write size=MIB, location=BLOCK or fast_commit_size=KIB",
    ),
    ("import disk.img none", 1, "none: no such file or directory"),
    (
        "import disk.img file",
        1,
        "a source is a directory or an archive (cp copies files): file: at byte 5: not an archive: shorter than a header",
    ),
    (
        "import disk.img dir --to rel",
        1,
        "--to rel: a path in the image begins with /: write /rel",
    ),
    (
        "import disk.img dir --to /d/f",
        1,
        "disk.img:/d/f: exists and is not a directory: remove it first",
    ),
    (
        "export disk.img:/none out",
        1,
        "disk.img:/none: no such file or directory: see extant ls disk.img:/",
    ),
    (
        "export disk.img:/none out.tar",
        1,
        "disk.img:/none: no such file or directory: see extant ls disk.img:/",
    ),
    (
        "export disk.img out.zip",
        1,
        "out.zip: not an archive that can be written: use .tar, .tar.gz, .tar.zst, .cpio, .cpio.gz or .cpio.zst; or make the directory first, if it is to be one",
    ),
    (
        "export disk.img:/d file",
        1,
        "file: exists and is not a directory: remove it first",
    ),
    (
        "export disk.img none/out.tar",
        1,
        "none/out.tar: no such file or directory: mkdir -p none makes its directory",
    ),
    (
        "info none.img",
        1,
        "none.img: no such file or directory: extant mkfs makes a new image",
    ),
    (
        "df file",
        1,
        "file: not an ext2/ext3/ext4 file system: too short for a superblock: file file may tell what it is",
    ),
    (
        "mount none.img mnt",
        1,
        "none.img: no such file or directory: extant mkfs makes a new image",
    ),
    (
        "mount disk.img none",
        1,
        "none: No such file or directory: mkdir -p none makes a place for it",
    ),
    (
        "mount file mnt",
        1,
        "file: not an ext2/ext3/ext4 file system: too short for a superblock: file file may tell what it is",
    ),
    (
        "mount disk.img file",
        1,
        "file: not a directory: first the image, then the directory to mount it on",
    ),
    (
        "mount -o frob disk.img mnt",
        1,
        r#"mount option "frob": not known: see extant mount --help"#,
    ),
    (
        "mount -o ro --scratch disk.img mnt",
        1,
        "--scratch is for changes: omit -o ro",
    ),
    (
        "umount mnt",
        1,
        "mnt: nothing is mounted here: findmnt -t fuse.extant,fuseblk.extant lists what is",
    ),
    (
        "umount none",
        1,
        "none: nothing is mounted here: findmnt -t fuse.extant,fuseblk.extant lists what is",
    ),
    (
        "status disk.img",
        1,
        "disk.img: nothing is mounted here: findmnt -t fuse.extant,fuseblk.extant lists what is",
    ),
    (
        "sync mnt",
        1,
        "mnt: nothing is mounted here: findmnt -t fuse.extant,fuseblk.extant lists what is",
    ),
    ("shell none.img", 1, "none.img: no such file or directory"),
    (
        "apply none disk.img",
        1,
        "none to disk.img: no such file or directory",
    ),
    (
        "apply file disk.img",
        1,
        "file to disk.img: too short for an overlay: extant mount --scratch --keep FILE writes overlays",
    ),
    (
        "man file",
        1,
        "file: not a directory: the pages are files in one",
    ),
    (
        "tree none.img",
        1,
        "none.img: no such file or directory: extant mkfs makes a new image",
    ),
    (
        "mkdir disk.img:/d/f/x",
        1,
        "disk.img:/d/f/x: not a directory: disk.img:/d/f is not a directory",
    ),
    (
        "rm -r disk.img:/.",
        1,
        "disk.img:/.: a path that ends in the root, . or .. is not removed: name what is in it, as /*",
    ),
];
