//! Options without effect, and refused options: the tables behind the one in docs/mount.md.

/// Options that select the default, that concern features which do not exist here, or that concern the mounting
/// program. With a trailing `=` an option has a value, any or the given one.
const NOTHING: &[&str] = &[
    // Options of every mount.
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "nouser",
    "bg",
    "comment=",
    "x",
    "loop",
    "silent",
    "loud",
    "nomand",
    "iversion",
    "noiversion",
    // Options of ext4.
    "acl",
    "user_xattr",
    "bsddf",
    "check=none",
    "nocheck",
    "debug",
    "nogrpid",
    "sysvgroups",
    "noquota",
    "oldalloc",
    "orlov",
    "data=ordered",
    "data=writeback",
    "data_err=abort",
    "barrier",
    "barrier=1",
    "journal_checksum",
    "nojournal_checksum",
    "inode_readahead_blks=",
    "stripe=",
    "delalloc",
    "max_batch_time=",
    "min_batch_time=",
    "journal_ioprio=",
    "init_itable",
    "init_itable=",
    "noinit_itable",
    "nombcache",
    "no_mbcache",
    "block_validity",
    "noblock_validity",
    "dioread_lock",
    "dioread_nolock",
    "nodiscard",
    "i_version",
    "dax=inode",
    "dax=never",
    // Options of FUSE.
    "default_permissions",
    "fd=",
    "rootmode=",
    "user_id=",
    "group_id=",
    "max_read=",
    "blksize=",
    "subtype=",
    "nonempty",
    "big_writes",
    "kernel_cache",
    "entry_timeout=",
    "attr_timeout=",
    "negative_timeout=",
    "intr",
    "hard_remove",
];

const QUOTA: &str = "quotas are not kept";
const JOURNAL: &str = "a journal of its own device is not supported";
const OWNERS: &str = "owners and modes are those of the image";
const LABELS: &str = "security contexts are those of the image's attributes";
const FLUSHES: &str = "no flush is left out";

/// Refused options, with the reason. With a trailing `=` an option has a value, any or the given one.
const REFUSED: &[(&str, &str)] = &[
    ("mand", "Linux has no mandatory locks any more"),
    ("nosymfollow", "symbolic links are followed"),
    ("loop=", "an image needs no loop device"),
    ("offset=", "an image begins at the start of its file"),
    ("sizelimit=", "an image begins at the start of its file"),
    ("context=", LABELS),
    ("fscontext=", LABELS),
    ("defcontext=", LABELS),
    ("rootcontext=", LABELS),
    ("noacl", "ACLs are always obeyed"),
    ("nouser_xattr", "attributes of users are always there"),
    ("minixdf", "the volume's own blocks are never free"),
    (
        "grpid",
        "new files get their creator's group, or a set-group-id directory's",
    ),
    (
        "bsdgroups",
        "new files get their creator's group, or a set-group-id directory's",
    ),
    ("quota", QUOTA),
    ("usrquota", QUOTA),
    ("grpquota", QUOTA),
    ("prjquota", QUOTA),
    ("jqfmt=", QUOTA),
    ("usrjquota=", QUOTA),
    ("grpjquota=", QUOTA),
    ("nouid32", "owners have 32 bits"),
    (
        "resuid=",
        "the superblock says whose the reserve is: see tune2fs -u",
    ),
    (
        "resgid=",
        "the superblock says whose the reserve is: see tune2fs -g",
    ),
    ("sb=", "a backup of the superblock is found without"),
    ("journal_dev=", JOURNAL),
    ("journal_path=", JOURNAL),
    ("data=journal", "data do not go through the journal"),
    ("data_err=ignore", "a write that fails is never ignored"),
    ("nobarrier", FLUSHES),
    ("barrier=0", FLUSHES),
    (
        "journal_async_commit",
        "a commit block follows the blocks that it commits",
    ),
    (
        "nodelalloc",
        "blocks are found when data are written back: see sync and writethrough",
    ),
    ("abort", "use FS_IOC_SHUTDOWN"),
    ("discard", "use fstrim"),
    (
        "max_dir_size_kb=",
        "directories are as large as the format allows",
    ),
    ("dax", "there is no persistent memory below an image"),
    ("dax=always", "there is no persistent memory below an image"),
    ("inlinecrypt", "encrypted files cannot be opened"),
    ("test_dummy_encryption", "encrypted files cannot be opened"),
    ("allow_root", "use allow_other"),
    ("auto_unmount", "the mount stays until it is unmounted"),
    (
        "direct_io",
        "mapped files have to be in memory: open files with O_DIRECT",
    ),
    ("umask=", OWNERS),
];

/// Returns whether an option matches a word of the tables.
fn is(option: &str, word: &str) -> bool {
    match word.strip_suffix('=') {
        Some(name) => option.split_once('=').is_some_and(|(n, _)| n == name),
        None => option == word,
    }
}

/// Returns whether the option is accepted without effect.
pub(super) fn mean_nothing(option: &str) -> bool {
    let private = ["x-", "X-"].iter().any(|begin| option.starts_with(begin));
    private || NOTHING.iter().any(|word| is(option, word))
}

/// Returns why the option is refused, if it is.
pub(super) fn refusal(option: &str) -> Option<&'static str> {
    let found = REFUSED.iter().find(|(word, _)| is(option, word));
    found.map(|(_, why)| *why)
}

/// Returns all words of the tables.
#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    NOTHING
        .iter()
        .copied()
        .chain(REFUSED.iter().map(|(word, _)| *word))
}
