//! The most common errors of users: each is one line that names the error, the place and the remedy.

use crate::cli::support::{Scratch, root};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// A command line, its exit code, and the line on standard error after "extant: ".
type Row = (&'static str, i32, &'static str);

/// Command lines typed in a directory with the files that [`fixture`] makes.
const TABLE: &[Row] = &[
    (
        "frobnicate",
        2,
        "frobnicate: no such command: see extant --help",
    ),
    ("lss disk.img", 2, "lss: no such command: is ls meant?"),
    (
        "put file disk.img:/x",
        2,
        "put: no such command: write extant cp file disk.img:/x",
    ),
    (
        "lsdel disk.img",
        2,
        "lsdel: no such command: write extant rescue --deleted IMAGE to list removed files, and --to DIR to copy them out",
    ),
    (
        "ls",
        2,
        "ls: <IMAGE:/PATH>... is missing: write extant ls <IMAGE:/PATH>...",
    ),
    (
        "ls --frob disk.img",
        2,
        "ls: --frob: no such option: see extant ls --help",
    ),
    (
        "ls -z disk.img",
        2,
        "ls: -z: no such option: see extant ls --help",
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
        "ls -",
        2,
        "ls: -: an image is read at many places, not from start to end: name a file",
    ),
    (
        "ls bigalloc.img",
        1,
        "bigalloc.img: unsupported incompatible feature: bigalloc: Linux can read it: mount bigalloc.img there, and extant import brings its files into a new image",
    ),
    (
        "ls disk.img:d",
        2,
        "ls: disk.img:d: there is no such file: write disk.img:/d?",
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
        "cat disk.img",
        2,
        "cat: disk.img is not a path in an image: write disk.img:/path",
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
        "cp file",
        2,
        "cp: missing arguments: write extant cp [OPTIONS] <PATH> <PATH>...",
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
        "chmod 999 disk.img:/d",
        2,
        "chmod: 999 is not a mode: write octal as 755, or changes as u+x,go-w",
    ),
    (
        "chmod disk.img:/d",
        2,
        "chmod: disk.img:/d is not a mode: write octal as 755, or changes as u+x,go-w",
    ),
    (
        "chown bob disk.img:/d",
        1,
        r#"disk.img:/d: bob is not a number, and the image's /etc/passwd: no such file or directory: write the number"#,
    ),
    (
        "chown 1:2:3 disk.img:/d",
        2,
        "chown: 1:2:3 has more than one colon: write USER:GROUP",
    ),
    (
        "touch -d never disk.img:/x",
        2,
        r#"touch: --date never is not a time: write seconds since 1970, or 2026-01-31, '2026-01-31 12:34:56' or 2026-01-31T12:34:56Z"#,
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
        "setfattr disk.img:/d",
        2,
        "setfattr: -n <NAME> is missing: write extant setfattr -n <NAME> <IMAGE:/PATH>...",
    ),
    (
        "mkfs new.img",
        1,
        "new.img: missing size: use --size 1G, or --from DIR",
    ),
    (
        "mkfs new.img 8M",
        2,
        "mkfs: 8M: unexpected argument: write --size 8M",
    ),
    (
        "mkfs new.img --size 1K",
        1,
        "1024 bytes are too small: 24576 bytes are enough: use --size 24K",
    ),
    (
        "mkfs new.img --size 5X",
        2,
        "mkfs: --size 5X: unknown unit x: use K, M, G or T, as in 512M",
    ),
    (
        "mkfs new.img --size lots",
        2,
        "mkfs: --size lots: unknown unit lots: use K, M, G or T, as in 512M",
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
        "mkfs new.img --from dir --size 10K",
        1,
        "10240 bytes are too small: 24576 bytes are enough: use --size 24K",
    ),
    (
        "mkfs new.img --from dir --free 200%",
        2,
        "mkfs: --free 200%: write 0% to 90%",
    ),
    (
        "mkfs new.img --size 8M -t ext5",
        2,
        "mkfs: --type ext5: use ext2, ext3 or ext4",
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
        "cannot be represented: block size other than a power of two from 1024 to 65536",
    ),
    (
        "mkfs new.img --size 8M -L averyverylonglabelindeed",
        1,
        "cannot be represented: label of more than 16 bytes",
    ),
    (
        "mkfs new.img --size 8M -U bad",
        2,
        "mkfs: --uuid bad: not a UUID: write one, or clear, random or time",
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
        "import disk.img",
        2,
        "import: <SOURCES>... is missing: write extant import <IMAGE> <SOURCES>...",
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
        "export disk.img",
        2,
        "export: <DEST> is missing: write extant export <IMAGE[:/PATH]> <DEST>",
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
        "mount disk.img",
        2,
        "mount: <DIR> is missing: write extant mount <IMAGE> <DIR>",
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
        "mount --keep x disk.img mnt",
        2,
        "mount: --scratch is missing: write extant mount --scratch --keep <FILE> <IMAGE> <DIR>",
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
        "apply file",
        2,
        "apply: <IMAGE> is missing: write extant apply <OVERLAY> <IMAGE>",
    ),
    (
        "completions tcsh",
        2,
        "completions: tcsh: use bash, elvish, fish, powershell, zsh",
    ),
    (
        "man file",
        1,
        "file: not a directory: the pages are files in one",
    ),
    (
        "disk.img",
        2,
        "disk.img: no such command: write extant ls disk.img",
    ),
    (
        "cat none",
        2,
        "cat: none is not a path in an image: write IMAGE:/path",
    ),
    (
        "mkfs new.img -d dir",
        2,
        "mkfs: -d: no such option: write --from DIR",
    ),
    (
        "bench mdtest --tasks 2",
        2,
        "bench: no such command: measuring is a program of its own: write extant-bench mdtest --tasks 2 (cargo build --release -p extant-bench builds it)",
    ),
    (
        "cp --frob disk.img:/d/f out",
        2,
        "cp: --frob: no such option: see extant cp --help",
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
    (
        "get disk.img:/d/f",
        2,
        "get: no such command: write extant cp IMAGE:/PATH FILE",
    ),
    (
        "rdump disk.img:/d out",
        2,
        "rdump: no such command: write extant cp -a disk.img:/d out",
    ),
    (
        "cd disk.img",
        2,
        "cd: no such command: write extant shell disk.img",
    ),
];

/// Command lines of an ordinary user that owns none of the files.
const OF_NOBODY: &[Row] = &[
    (
        "mkdir disk.img:/x",
        1,
        "disk.img: Permission denied: it is of user 0 with mode 0644, and you are 65534",
    ),
    (
        "ls closed.img",
        1,
        "closed.img: Permission denied: it is of user 0 with mode 0000, and you are 65534",
    ),
    (
        "mkfs new.img --size 8M",
        1,
        "new.img: Permission denied: name a file in a directory that is yours, not in .",
    ),
    ("cp disk.img:/d/f out", 1, "out: Permission denied"),
];

/// Makes images and files of the kinds that users name by mistake.
fn fixture() -> Option<Scratch> {
    let s = Scratch::ext4()?;
    let made = |name: &str, size: &str, args: &[&str]| {
        let mut mke2fs = Command::new("mke2fs");
        mke2fs.args(["-q", "-F", "-E", "nodiscard"]).args(args);
        let out = mke2fs.arg(s.host(name)).arg(size).output().unwrap();
        assert!(out.status.success(), "{out:?}");
    };
    made("other.img", "32M", &["-t", "ext4"]);
    made("quota.img", "16M", &["-t", "ext4", "-O", "quota"]);
    made("inline.img", "16M", &["-t", "ext4", "-O", "inline_data"]);
    made("bigalloc.img", "16M", &["-t", "ext4", "-O", "bigalloc"]);
    made("small.img", "2M", &["-t", "ext4", "-b", "1024"]);
    let write = |name: &str, content: &[u8]| fs::write(s.host(name), content).unwrap();
    let marked = |at: usize, mark: &[u8]| {
        let mut content = vec![0; 70_000];
        content[at..at + mark.len()].copy_from_slice(mark);
        content
    };
    fs::create_dir(s.host("dir")).unwrap();
    fs::create_dir(s.host("mnt")).unwrap();
    write("file", b"text\n");
    write("dir/f", b"x");
    write("empty", b"");
    write("junk", &[b'Z'; 100_000]);
    write("zero", &[0; 70_000]);
    write("big", &vec![b'b'; 4 << 20]);
    write("disk.qcow2", &marked(0, b"QFI\xfb"));
    write("pc.img", &marked(510, &[0x55, 0xaa]));
    write("a.tar", &marked(257, b"ustar"));
    s.ok(&["mkdir", ":/d"]);
    s.ok(&["cp", "@file", ":/d/f"]);
    s.ok(&["ln", "-s", "/nowhere", ":/dangling"]);
    s.ok(&["ln", "-s", "loop", ":/loop"]);
    Some(s)
}

/// Runs a command line in a directory; returns its exit code and its message.
fn said(
    program: &Path,
    dir: &Path,
    line: &str,
    prepare: impl FnOnce(&mut Command),
) -> (i32, String) {
    let mut command = Command::new(program);
    command
        .args(line.split(' '))
        .current_dir(dir)
        .stdin(Stdio::null());
    prepare(&mut command);
    let out = command.output().unwrap();
    assert!(out.stdout.is_empty(), "{line}");
    (
        out.status.code().unwrap(),
        String::from_utf8(out.stderr).unwrap(),
    )
}

#[test]
fn every_message_says_what_and_where_and_what_next() {
    let Some(s) = fixture() else { return };
    let program = Path::new(env!("CARGO_BIN_EXE_extant"));
    let mut wrong = Vec::new();
    for (line, code, want) in TABLE {
        let found = said(program, s.dir.path(), line, |_| {});
        if found != (*code, format!("extant: {want}\n")) {
            wrong.push(format!("{line}\n  {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The image that another process has locked.
    let lock = fs::File::open(&s.image).unwrap();
    lock.lock().unwrap();
    let (_, found) = said(program, s.dir.path(), "mkdir disk.img:/x", |_| {});
    assert_eq!(
        found,
        "extant: disk.img: already in use by another process or mount (locked): extant umount its directory, or see \
         fuser -v disk.img\n"
    );
    // The lock may be released soon, like that of a mount's server when umount(8) returns.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(300));
            lock.unlock().unwrap();
        });
        let (code, found) = said(program, s.dir.path(), "mkdir disk.img:/x", |_| {});
        assert_eq!((code, &*found), (0, ""));
    });
    s.clean();
}

#[test]
fn what_others_may_not_do_is_told_with_who_may() {
    if !root() {
        return;
    }
    let Some(s) = fixture() else { return };
    let program = s.host("extant");
    fs::copy(env!("CARGO_BIN_EXE_extant"), &program).unwrap();
    fs::copy(&s.image, s.host("closed.img")).unwrap();
    let allow = |name: &str, mode| {
        fs::set_permissions(s.host(name), fs::Permissions::from_mode(mode)).unwrap();
        chown(s.host(name), Some(0), Some(0)).unwrap();
    };
    allow(".", 0o755);
    allow("disk.img", 0o644);
    allow("closed.img", 0);
    for (line, code, want) in OF_NOBODY {
        let found = said(&program, s.dir.path(), line, |command| {
            command.uid(65_534).gid(65_534);
        });
        assert_eq!(found, (*code, format!("extant: {want}\n")), "{line}");
    }
}
