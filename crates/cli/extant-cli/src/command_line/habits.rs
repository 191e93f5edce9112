//! Answers commands of debugfs, mke2fs, guestfish and plain Unix that are not subcommands here with the equivalent
//! command.

use crate::command_line::usage::names_image;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use extant_cli_core::address::Location;
use std::ffi::OsString;

/// The kind of an answer to a habit.
enum Answer {
    /// A command and its usual operands. The user's operands replace them if their number fits and one names an image.
    Command(&'static str, &'static str),
    /// A line of text.
    Line(&'static str),
    /// Points to `extant-bench` with the same words, because benchmarks are a separate program.
    Measure,
}

use Answer::{Command, Line, Measure};

/// Habits and their answers.
const HABITS: &[(&[&str], Answer)] = &[
    (
        &["put", "write", "upload", "add"],
        Command("cp", "FILE IMAGE:/PATH"),
    ),
    (
        &["get", "dump", "download", "fetch"],
        Command("cp", "IMAGE:/PATH FILE"),
    ),
    (&["copy"], Command("cp", "FROM TO")),
    (&["copy-in"], Command("cp -r", "DIR IMAGE:/PATH")),
    (&["copy-out"], Command("cp -r", "IMAGE:/PATH DIR")),
    (&["rdump"], Command("cp -a", "IMAGE:/PATH DIR")),
    (
        &["tar-in", "tgz-in", "unpack", "load"],
        Command("import", "IMAGE ARCHIVE"),
    ),
    (
        &["tar-out", "tgz-out", "extract", "unzip", "untar", "tar"],
        Command("export", "IMAGE:/PATH ARCHIVE.tar"),
    ),
    (
        &["dir", "ll", "list", "lsdir", "readdir"],
        Command("ls -l", "IMAGE:/PATH"),
    ),
    (
        &["find", "find0", "locate"],
        Command("ls -R", "IMAGE:/PATH"),
    ),
    (
        &["del", "delete", "unlink", "kill_file"],
        Command("rm", "IMAGE:/PATH"),
    ),
    (&["rmdir"], Command("rm -d", "IMAGE:/PATH")),
    (&["rm-rf", "rmtree"], Command("rm -r", "IMAGE:/PATH")),
    (
        &["rename", "move", "ren"],
        Command("mv", "IMAGE:/OLD IMAGE:/NEW"),
    ),
    (&["md", "mkdir-p"], Command("mkdir -p", "IMAGE:/PATH")),
    (&["link"], Command("ln", "IMAGE:/FILE IMAGE:/NAME")),
    (&["symlink", "ln-s"], Command("ln -s", "TARGET IMAGE:/NAME")),
    (
        &["readlink", "inode_dump", "show_inode_info", "lstat", "file"],
        Command("stat", "IMAGE:/PATH"),
    ),
    (
        &["type", "more", "less", "head", "view"],
        Command("cat", "IMAGE:/PATH"),
    ),
    (
        &["grep", "egrep", "rg", "strings", "wc"],
        Line(
            "write extant cat IMAGE:/PATH | grep TEXT, or extant shell IMAGE -- grep -r TEXT . for a tree",
        ),
    ),
    (
        &["convert", "dd", "clone"],
        Line(
            "a name selects the format: extant mkfs NEW.qcow2 --from IMAGE copies the files; qemu-img convert copies all bytes",
        ),
    ),
    (
        &["edit", "vi", "vim", "nano", "emacs"],
        Line("write extant cp IMAGE:/PATH FILE, change FILE, then extant cp FILE IMAGE:/PATH"),
    ),
    (
        &["ea_list", "xattr", "getxattr", "getfacl"],
        Command("getfattr -d -m -", "IMAGE:/PATH"),
    ),
    // The Sleuth Kit and other programs that examine images.
    (&["fls"], Command("ls -Ri", "IMAGE:/")),
    (&["icat"], Line("write extant cat 'IMAGE:<12>'")),
    (
        &["istat", "testi"],
        Line("write extant inspect IMAGE stat '<12>'"),
    ),
    (&["fsstat"], Command("info", "IMAGE")),
    (
        &["mmls", "fdisk", "sfdisk", "parted", "gdisk", "partitions"],
        Command("info", "IMAGE"),
    ),
    (
        &["blkcat", "blkstat"],
        Line("write extant inspect IMAGE dump-block N"),
    ),
    (
        &["ifind", "icheck"],
        Line("write extant inspect IMAGE icheck BLOCK"),
    ),
    (
        &["ffind", "ncheck"],
        Line("write extant inspect IMAGE ncheck INODE"),
    ),
    (
        &["jls", "jcat", "logdump", "journal"],
        Line("write extant inspect IMAGE journal all"),
    ),
    (
        &["mactime", "timeline"],
        Line("write extant rescue --deleted --body IMAGE >body, and give the file to mactime -b"),
    ),
    (
        &["hash", "checksum", "sha1sum", "sha256sum", "md5sum"],
        Line(
            "write extant cat IMAGE:/PATH | sha256sum, or extant shell IMAGE -- find . -type f -exec sha256sum {} + for a tree",
        ),
    ),
    (&["ea_get"], Command("getfattr -n NAME", "IMAGE:/PATH")),
    (
        &["ea_set", "setxattr", "setfacl"],
        Command("setfattr -n NAME -v VALUE", "IMAGE:/PATH"),
    ),
    (&["ea_rm"], Command("setfattr -x NAME", "IMAGE:/PATH")),
    (
        &["mknod", "mkfifo"],
        Line(
            "write extant shell IMAGE -- mknod NAME TYPE MAJOR MINOR, or bring it in an archive: extant import IMAGE ARCHIVE",
        ),
    ),
    (
        &["du"],
        Line("write extant shell IMAGE -- du -sh . , or extant df -h IMAGE for the whole image"),
    ),
    (
        &["cd", "lcd", "pwd", "open", "run", "sh", "bash", "exec"],
        Command("shell", "IMAGE"),
    ),
    (&["chroot", "enter"], Command("shell --chroot", "IMAGE")),
    (
        &[
            "mke2fs",
            "mkfs.ext4",
            "format",
            "create",
            "make",
            "new",
            "mkfs-ext4",
            "sparse",
            "alloc",
        ],
        Command("mkfs", "IMAGE --size 1G"),
    ),
    (&["build", "pack"], Command("mkfs", "IMAGE --from DIR")),
    (
        &[
            "show_super_stats",
            "stats",
            "dumpe2fs",
            "features",
            "show",
            "blkid",
            "list-filesystems",
        ],
        Command("info", "IMAGE"),
    ),
    (
        &["label", "e2label"],
        Line("write extant info IMAGE to see the label, extant tune IMAGE -L NAME to set it"),
    ),
    (
        &["snapshot", "backup"],
        Line(
            "write cp --reflink=auto IMAGE COPY, or extant mount --scratch --keep FILE IMAGE DIR, which writes to FILE instead of the image",
        ),
    ),
    (&["version"], Line("write extant --version")),
    (
        &["hexdump", "xxd", "od", "block_dump"],
        Line("write extant inspect IMAGE dump-block N"),
    ),
    (
        &["cmp", "compare", "vdiff"],
        Command("diff", "IMAGE IMAGE2"),
    ),
    (
        &["unmount", "fusermount", "eject", "close"],
        Command("umount", "DIR"),
    ),
    (&["flush", "freeze"], Command("sync", "DIR")),
    (&["commit", "merge"], Command("apply", "OVERLAY IMAGE")),
    (
        &[
            "lsdel",
            "undel",
            "undelete",
            "list_deleted_inodes",
            "restore",
            "recover",
            "tsk_recover",
            "extundelete",
            "ext4magic",
            "photorec",
            "carve",
        ],
        Line(
            "write extant rescue --deleted IMAGE to list removed files, and --to DIR to copy them out",
        ),
    ),
    (&["bench", "demo"], Measure),
    (
        &["fsck", "e2fsck", "verify"],
        Line("write extant check IMAGE to look for damage, and extant repair IMAGE to mend it"),
    ),
    (&["tune2fs"], Command("tune", "IMAGE")),
    (
        &["fstrim", "zerofree", "sparsify", "compact"],
        Command("trim", "IMAGE"),
    ),
    (&["e4defrag", "defragment"], Command("defrag", "IMAGE")),
    (
        &["resize2fs", "grow", "shrink", "extend", "expand"],
        Command("resize", "IMAGE 2G"),
    ),
    (
        &["debugfs", "set_super_value", "set_inode_field"],
        Line(
            "extant inspect IMAGE shows what is inside; single fields are changed by debugfs -w IMAGE",
        ),
    ),
];

/// Quotes an operand for a shell.
fn quoted(word: &OsString) -> String {
    let text = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%<>".contains(c);
    if !text.is_empty() && text.chars().all(|c| plain(c) && !"<>".contains(c)) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Returns the line that answers an unknown subcommand, if the subcommand is a known habit.
pub fn answer(error: &clap::Error, args: &[OsString]) -> Option<String> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let habit = |(names, _): &&(&[&str], Answer)| names.contains(&typed.as_str());
    let (_, answer) = HABITS.iter().find(habit)?;
    let at = args.iter().position(|arg| arg == typed.as_str())?;
    let operands: Vec<_> = args[at + 1..]
        .iter()
        .filter(|arg| !arg.to_string_lossy().starts_with('-') || *arg == "-")
        .collect();
    let in_image = |arg: &&&OsString| matches!(Location::from((**arg).clone()), Location::Image(_));
    Some(match answer {
        Line(line) => format!("{typed}: no such command: {line}"),
        Measure => {
            let words = if typed == "bench" {
                &args[at + 1..]
            } else {
                &args[at..]
            };
            let words: Vec<_> = words.iter().map(quoted).collect();
            let words = if words.is_empty() {
                "--help".into()
            } else {
                words.join(" ")
            };
            format!(
                "{typed}: no such command: measuring is a program of its own: write extant-bench {words} \
                 (cargo build --release -p extant-bench builds it)"
            )
        }
        Command(command, with)
            if operands.iter().any(|arg| in_image(&arg))
                && operands.len() >= with.split(' ').count() =>
        {
            let words: Vec<_> = operands.into_iter().map(quoted).collect();
            format!(
                "{typed}: no such command: write extant {command} {}",
                words.join(" ")
            )
        }
        Command(command, "IMAGE") if matches!(&operands[..], [image] if names_image(&image.to_string_lossy())) =>
        {
            let image = operands.into_iter().map(quoted).collect::<String>();
            format!("{typed}: no such command: write extant {command} {image}")
        }
        Command(command, with) => {
            format!("{typed}: no such command: write extant {command} {with}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::args::Cli;
    use clap::{CommandFactory, Parser};

    /// Every answer is a valid command line, and no habit is the name of a subcommand.
    #[test]
    fn answers_are_commands() {
        let mut names: Vec<&str> = HABITS
            .iter()
            .flat_map(|(names, _)| *names)
            .copied()
            .collect();
        for name in &names {
            let known = Cli::command()
                .get_subcommands()
                .any(|c| c.get_name() == *name);
            assert!(!known, "{name}");
        }
        for (names, answer) in HABITS {
            if let Command(command, with) = answer {
                let words = format!("extant {command} {with}");
                let parsed = Cli::try_parse_from(words.split(' '));
                assert!(
                    parsed.is_ok(),
                    "{names:?}: {words}: {}",
                    parsed.unwrap_err()
                );
            }
        }
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "one habit, one answer");
    }
}
