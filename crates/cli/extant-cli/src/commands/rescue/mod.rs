//! `extant rescue`.

mod archive;
mod body;
mod copy;

use anyhow::{Context, Result};
use blockdev::{Access, BlockDevice};
use ext4_format::inode::InodeCore;
use extant_cli_core::address::Rooted;
use extant_cli_core::format::show::{HostPath, JsonPath, ShowPath, count, show, type_letter};
use extant_cli_core::format::times;
use extant_cli_core::image::advice::no_disk;
use extant_cli_core::image::{identity, store};
use extant_rescue::{DeletedSearch, Rescue};
use extant_terminal::progress::Progress;
use extant_terminal::{interrupt, output};
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Exit code: data are lost.
const LOST: u8 = 4;
/// Exit code: nothing could be rescued.
const FAILED: u8 = 8;

/// Recover files from a broken image
///
/// The image is only read. A lost superblock is replaced by a backup, if necessary after a search of the whole image.
/// Lost group descriptors are replaced by their backups, or by a search for the inode tables; lost directories by a
/// search for directory blocks. Files without a name are named after their inode number: #12. Names whose directory is
/// unknown are in #names.
///
/// Without --to or --tar, the files found are listed. With --to they are copied to a new or empty directory, with
/// holes, permissions and times, but without owners, extended attributes, devices, FIFOs and sockets. The journal is
/// not replayed, so files that are only in the journal are not found.
///
/// The exit code is 0 if no loss is known, 4 if data are lost, 8 if nothing could be rescued.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  extant rescue disk.img\n  extant rescue --to found disk.img")]
pub struct Args {
    /// Image to read
    image: Rooted,
    /// Copy the files to a new or empty directory, which must not be on the broken file system
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Also look for deleted files in the journal, and put them into #deleted
    #[arg(long)]
    deleted: bool,
    /// Write the files to a new tar archive, with owners
    #[arg(long, value_name = "FILE", conflicts_with = "to")]
    tar: Option<PathBuf>,
    /// List the files even with --to or --tar
    #[arg(long)]
    list: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Print the files with their times as a body file of the Sleuth Kit, for mactime; with --deleted, also the
    /// deleted inodes of which only the record is left
    #[arg(long, conflicts_with_all = ["json", "list", "to", "tar"])]
    body: bool,
}

#[derive(Serialize)]
struct Rescued {
    image: HostPath,
    notes: Vec<String>,
    found: Vec<Item>,
    copied: Option<u64>,
    lost: Vec<Loss>,
}

#[derive(Serialize)]
struct Item {
    #[serde(flatten)]
    path: JsonPath,
    inode: u32,
    named: bool,
    deleted: bool,
    #[serde(rename = "type")]
    kind: &'static str,
    size: u64,
    problem: Option<&'static str>,
    /// `null` if the inode is lost.
    attributes: Option<Attributes>,
}

/// Attributes of an inode, with times in UTC.
#[derive(Serialize)]
struct Attributes {
    mode: String,
    uid: u32,
    gid: u32,
    links: u32,
    generation: u32,
    atime: String,
    mtime: String,
    ctime: String,
    crtime: String,
}

impl From<InodeCore> for Attributes {
    fn from(core: InodeCore) -> Self {
        Self {
            mode: format!("{:04o}", core.mode & 0o7777),
            uid: core.uid,
            gid: core.gid,
            links: core.links,
            generation: core.generation,
            atime: times::utc(core.atime),
            mtime: times::utc(core.mtime),
            ctime: times::utc(core.ctime),
            crtime: times::utc(core.crtime),
        }
    }
}

/// A loss in copying.
#[derive(Serialize)]
struct Loss {
    /// Description for people.
    #[serde(skip)]
    shown: String,
    #[serde(flatten)]
    path: JsonPath,
    reason: String,
}

impl Loss {
    fn of(path: &[u8], reason: String) -> Self {
        Self {
            shown: show(path),
            path: path.into(),
            reason,
        }
    }
}

pub fn run(args: &Args) -> Result<()> {
    match rescue(args, &args.image.0.image) {
        Ok(false) => Ok(()),
        Ok(true) => Err(output::exit_with(LOST)),
        Err(error) => Err(output::report_as(error, FAILED)),
    }
}

/// Rescues the files, and returns whether data are lost.
fn rescue(args: &Args, image: &Path) -> Result<bool> {
    identity::identity(image)?;
    no_disk(image)?;
    let name = image.shown();
    let harmless = interrupt::harmless()?;
    let device = store::open(image, Access::ReadOnly)?;
    let mut found = search(&name, &device)?;
    if args.deleted {
        found.find_deleted();
    }
    drop(harmless);
    interrupt::check()?;
    let copied = match &args.to {
        Some(to) => Some(copy::copy(&found, to).with_context(|| to.shown())?),
        None => match &args.tar {
            Some(tar) => {
                Some(archive::pack(&found, tar, device.len()).with_context(|| tar.shown())?)
            }
            None => None,
        },
    };
    let lost = !found.notes().is_empty()
        || copied
            .as_ref()
            .is_some_and(|copied| !copied.lost.is_empty());
    tell(args, &name, &found, copied)?;
    Ok(lost)
}

fn search<'d>(name: &str, device: &'d dyn BlockDevice) -> Result<Rescue<'d>> {
    let progress = Progress::bytes(&format!("{name}: searching"), 0);
    let mut last = 0;
    let found = Rescue::open(device, &mut |done, _| {
        // Each search starts at zero.
        progress.add(done.saturating_sub(last));
        last = done;
    });
    progress.done();
    found.with_context(|| name.to_owned())
}

/// Describes the search for deleted files, and if it found no file, the reason.
fn looked_for(searched: &DeletedSearch) -> String {
    let seen = format!(
        "deleted files: {} found in the journal, which has {} of inode tables and {} of directories from {}",
        searched.files,
        count(searched.tables, "old block", "old blocks"),
        count(searched.directories, "old block", "old blocks"),
        count(searched.transactions, "transaction", "transactions"),
    );
    match (searched.files, searched.tables) {
        (0, 0) => {
            format!("{seen}: it has no record of any inode: what was removed cannot be found by it")
        }
        (0, _) => format!(
            "{seen}: none of them has the inode of a deleted file: such records are older, or were overwritten"
        ),
        _ => seen,
    }
}

fn tell(args: &Args, name: &str, rescue: &Rescue<'_>, copied: Option<copy::Copied>) -> Result<()> {
    let files = copied.as_ref().map(|copied| copied.files);
    let lost = copied.map(|copied| copied.lost).unwrap_or_default();
    if args.json {
        let items = rescue.found().iter().map(|found| Item {
            path: found.path[..].into(),
            inode: found.ino.0,
            named: found.named,
            deleted: found.deleted,
            kind: found.file_type.name(),
            size: found.size,
            problem: found.problem,
            attributes: rescue.attributes(found).map(Attributes::from),
        });
        return output::json(&Rescued {
            image: HostPath::from(args.image.0.image.as_path()),
            notes: rescue.notes().to_vec(),
            found: items.collect(),
            copied: files,
            lost,
        });
    }
    let mut out = output::stdout();
    if args.body {
        body::write(Path::new(name), rescue, args.deleted, &mut out)?;
        rescue.notes().iter().for_each(|note| {
            output::note(format_args!("{name}: {}", show(note.as_bytes())));
        });
        return Ok(out.flush()?);
    }
    if args.list || (args.to.is_none() && args.tar.is_none()) {
        for found in rescue.found() {
            let problem = found.problem.map(|why| format!("  ({why})"));
            writeln!(
                out,
                "{} {:>12} {}{}",
                type_letter(found.file_type),
                found.size,
                show(&found.path),
                problem.unwrap_or_default()
            )?;
        }
    }
    for note in rescue.notes() {
        writeln!(out, "{name}: {}", show(note.as_bytes()))?;
    }
    if rescue.more_notes() > 0 {
        let more = count(rescue.more_notes(), "note more", "notes more");
        writeln!(out, "{name}: {more}")?;
    }
    for loss in &lost {
        writeln!(out, "{}: {}", loss.shown, show(loss.reason.as_bytes()))?;
    }
    if args.deleted
        && let Some(searched) = rescue.deleted_search()
    {
        writeln!(out, "{name}: {}", looked_for(&searched))?;
    }
    let nameless = rescue.found().iter().filter(|found| !found.named).count();
    let summary = [
        count(rescue.found().len() as u64, "name found", "names found"),
        count(
            nameless as u64,
            "file without a name",
            "files without a name",
        ),
    ];
    let copied = files.map(|files| format!(", {}", count(files, "file copied", "files copied")));
    writeln!(
        out,
        "{name}: {}{}",
        summary.join(", "),
        copied.unwrap_or_default()
    )?;
    Ok(out.flush()?)
}
