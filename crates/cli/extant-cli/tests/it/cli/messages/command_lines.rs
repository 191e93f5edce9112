//! Command lines that are wrong in themselves.

use super::Row;

pub(super) const TABLE: &[Row] = &[
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
        "label disk.img x",
        2,
        "label: no such command: write extant info IMAGE to see the label, extant tune IMAGE -L NAME to set it",
    ),
    (
        "cmp disk.img file",
        2,
        "cmp: no such command: write extant diff IMAGE IMAGE2",
    ),
    (
        "version",
        2,
        "version: no such command: write extant --version",
    ),
    (
        "rescue disk.img out",
        2,
        "rescue: out: unexpected argument: write --to out",
    ),
    (
        "lsdel disk.img",
        2,
        "lsdel: no such command: write extant rescue --deleted IMAGE to list removed files, and --to DIR to copy them out",
    ),
    (
        "fls disk.img",
        2,
        "fls: no such command: write extant ls -Ri IMAGE:/",
    ),
    (
        "mmls disk.img",
        2,
        "mmls: no such command: write extant info disk.img",
    ),
    (
        "sha256sum disk.img:/file",
        2,
        "sha256sum: no such command: write extant cat IMAGE:/PATH | sha256sum, or extant shell IMAGE -- find . -type f -exec sha256sum {} + for a tree",
    ),
    (
        "check disk.img --verity",
        16,
        "check: --verity: a value is missing: see extant check --help",
    ),
    (
        "mkfs new.img --from disk.img:v2",
        1,
        "disk.img:v2: no such file or directory: is disk.img with --tag v2 meant?",
    ),
    (
        "mkfs new.img --from oci:disk.img:v2",
        1,
        "oci:disk.img:v2: no such file or directory: is disk.img with --tag v2 meant?",
    ),
    (
        "mkfs new.img --from docker://alpine",
        1,
        "docker://alpine: no such file or directory: skopeo copy docker://alpine oci:DIR makes a directory for --from",
    ),
    (
        "mkfs new.img --from https://example.org/root.tar",
        1,
        "https://example.org/root.tar: no such file or directory: sources are files: download it first, or pipe it in, with - in its place",
    ),
    (
        "mkfs new.img --from disk.img:/etc",
        1,
        "disk.img:/etc: no such file or directory: only whole images are sources: pipe extant export disk.img:/etc - in, with - in its place",
    ),
    (
        "disk new.img --ext4 root=disk.img:min",
        2,
        "disk: --ext4 root=disk.img:min: unknown unit min: use K, M, G, T, P or E, as in 512M",
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
        "ls -",
        2,
        "ls: -: an image is read at many places, not from start to end: name a file",
    ),
    (
        "ls disk.img:d",
        2,
        "ls: disk.img:d: there is no such file: write disk.img:/d?",
    ),
    (
        "cat disk.img",
        2,
        "cat: disk.img is not a path in an image: write disk.img:/path",
    ),
    (
        "cp file",
        2,
        "cp: missing arguments: write extant cp [OPTIONS] <PATH> <PATH>...",
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
        "setfattr disk.img:/d",
        2,
        "setfattr: -n <NAME> is missing: write extant setfattr -n <NAME> <IMAGE:/PATH>...",
    ),
    (
        "mkfs new.img 8M",
        2,
        "mkfs: 8M: unexpected argument: write --size 8M",
    ),
    (
        "mkfs new.img --size 5X",
        2,
        "mkfs: --size 5X: unknown unit x: use K, M, G, T, P or E, as in 512M",
    ),
    (
        "mkfs new.img --size 8M -m five",
        2,
        "mkfs: --reserved five: 'five' is not a percentage (try 5 or 0.5)",
    ),
    (
        "tune disk.img -m five",
        2,
        "tune: --reserved-percent five: 'five' is not a percentage (try 5 or 0.5)",
    ),
    (
        "mkfs new.img --size 8M -m nan",
        2,
        "mkfs: --reserved nan: 'nan' is not a percentage from 0 to 50",
    ),
    (
        "tune disk.img -m 900",
        2,
        "tune: --reserved-percent 900: '900' is not a percentage from 0 to 50",
    ),
    (
        "tune disk.img -m=-3",
        2,
        "tune: --reserved-percent -3: '-3' is not a percentage from 0 to 50",
    ),
    (
        "mkfs new.img --size 8M --threads 100000",
        2,
        "mkfs: --threads 100000: '100000' is not a number of threads (0 to 1024)",
    ),
    (
        "mkfs new.img --size lots",
        2,
        "mkfs: --size lots: unknown unit lots: use K, M, G, T, P or E, as in 512M",
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
        "mkfs new.img --size 8M -U bad",
        2,
        "mkfs: --uuid bad: not a UUID: write one, or clear, random or time",
    ),
    (
        "import disk.img",
        2,
        "import: <SOURCES>... is missing: write extant import <IMAGE> <SOURCES>...",
    ),
    (
        "export disk.img",
        2,
        "export: <DEST> is missing: write extant export <IMAGE[:/PATH]> <DEST>",
    ),
    (
        "mount disk.img",
        2,
        "mount: <DIR> is missing: write extant mount <IMAGE> <DIR>",
    ),
    (
        "mount --keep x disk.img mnt",
        2,
        "mount: --scratch is missing: write extant mount --scratch --keep <FILE> <IMAGE> <DIR>",
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
